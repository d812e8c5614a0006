"""What ``pip install .`` runs: Bazel builds the wheel, as ``deploy/setup`` does.

The build needs what ``deploy/setup --no-build`` installs, and nothing from PyPI. The hooks are
those of PEP 517.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import assemble_wheel

ROOT = Path(__file__).resolve().parents[2]
TARGET = "//client/python:wheel"


def _fail(problem: str) -> NoReturn:
    raise SystemExit(f"ringd: {problem}")


def _bazel(*arguments: str) -> str:
    """Its standard output; the rest goes where pip shows it."""
    result = subprocess.run(["bazel", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        _fail("Bazel can't build the wheel (above); run `deploy/setup`, which installs what it needs")
    return result.stdout


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Puts the wheel into the folder; its name."""
    if shutil.which("bazel") is None:
        _fail("is built by Bazel; run `deploy/setup` on Debian 12, then `pip install dist/ringd-*.whl`")
    _bazel("build", "--color=no", "--curses=no", TARGET)
    version = assemble_wheel.release(ROOT / "client/core/attach/library_version.h")
    name = assemble_wheel.file_name(version)
    built = Path(_bazel("info", "bazel-bin").strip()) / "client/python" / name
    shutil.copyfile(built, Path(wheel_directory) / name)
    return name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> NoReturn:
    """There is none: the sources are the repository."""
    _fail("has no source distribution: build from the repository, `pip wheel .`")
