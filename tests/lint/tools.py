"""Formatters and checkers that need no build. Each returns its complaints, one a line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lint.source_tree import SourceTree

VENV_BIN = Path(sys.executable).parent
CLANG_FORMAT = "clang-format-14"
FIX = "tests/lint/run --fix does it"


def _complaints(tree: SourceTree, command: Sequence[str | Path], timeout_s: float = 300) -> list[str]:
    """What a tool that exits with 0 when all is well printed when it did not."""
    result = subprocess.run(
        command,
        cwd=tree.root,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if result.returncode == 0:
        return []
    lines = (result.stdout + result.stderr).splitlines()
    return lines or [f"{command[0]} exited with {result.returncode} and said nothing"]


def clang_format(tree: SourceTree) -> list[str]:
    if not tree.cpp:
        return []
    lines = _complaints(tree, [CLANG_FORMAT, "--dry-run", "-Werror", *tree.cpp])
    places = [line for line in lines if "clang-format-violations" in line]
    first_of_file = {place.split(":", 1)[0]: place for place in reversed(places)}
    return [f"{':'.join(place.split(':')[:2])}: not formatted; {FIX}" for place in first_of_file.values()][
        ::-1
    ] or lines


def ruff_check(tree: SourceTree) -> list[str]:
    return _complaints(tree, [VENV_BIN / "ruff", "check", "--quiet", "--output-format=concise", *tree.python])


def ruff_format(tree: SourceTree) -> list[str]:
    lines = _complaints(
        tree, [VENV_BIN / "ruff", "format", "--check", "--output-format=concise", *tree.python]
    )
    return [line.replace("File would be reformatted", f"not formatted; {FIX}") for line in lines]


def fix(tree: SourceTree) -> None:
    """Formats every file in place."""
    subprocess.run([CLANG_FORMAT, "-i", *tree.cpp], cwd=tree.root, check=True)
    subprocess.run([VENV_BIN / "ruff", "format", "--quiet", *tree.python], cwd=tree.root, check=True)


def mypy(tree: SourceTree) -> list[str]:
    modules = [path for path in tree.python if path.suffix == ".py"]
    cache = tree.root / ".cache" / "mypy"
    return _complaints(tree, [VENV_BIN / "mypy", "--cache-dir", cache, "--no-error-summary", *modules])


def shellcheck(tree: SourceTree) -> list[str]:
    if not tree.shell:
        return []
    return _complaints(tree, ["shellcheck", "--severity=warning", "--format=gcc", *tree.shell])
