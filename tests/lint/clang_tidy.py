"""clang-tidy over every translation unit, with clang's warnings and its thread-safety analysis.

A unit that was clean is not looked at again until its source, a header of ours that it includes
(also through others), its flags, the checks, the tool or what the build fetches change:
~/.cache/ringd/lint holds one empty file per clean state, for all clones of the project as Bazel's
disk cache beside it.

Nine tenths of the time go into headers, so units are looked at in groups (unit_groups.py). Those of
a group with a complaint are looked at again one by one, which tells whose it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lint.layers import ALLOWED, INCLUDE
from tests.lint.source_tree import SourceTree
from tests.lint.tools import VENV_BIN
from tests.lint.unit_groups import GROUP_SIZE, groups

# The deprecated function is inside libstdc++'s own std::stable_sort.
CLANG_FLAGS = (
    "-Wall",
    "-Wextra",
    "-Wthread-safety",
    "-Wno-unknown-warning-option",
    "-Wno-deprecated-declarations",
)
# Checks that know only C++.
NOT_FOR_C = "--checks=-readability-identifier-naming,-modernize-*"
# Flags of the build that change what the code means, rather than how it is compiled.
FLAGS_WITH_VALUE = ("-iquote", "-isystem", "-I")
TIMEOUT_S = 900  # beside tests it only has what these leave
CLEAN_STATES = Path("~/.cache/ringd/lint")
UNUSED_FOR_S = 30 * 24 * 3600
DIAGNOSTIC = re.compile(r": (error|warning): ")


class BuildError(Exception):
    """Bazel couldn't say how the code is compiled."""


@dataclass(frozen=True)
class Unit:
    source: Path
    flags: tuple[str, ...]
    # The same flags by Bazel's names for folders, which are those of any clone.
    names: tuple[str, ...]


def check(tree: SourceTree) -> list[str]:
    """The diagnostics of all units, or why they can't be had."""
    try:
        units = _translation_units(tree)
    except BuildError as error:
        return [str(error)]
    clean_states = CLEAN_STATES.expanduser()
    clean_states.mkdir(parents=True, exist_ok=True)
    forget_unused(clean_states, time.time() - UNUSED_FOR_S)
    tool = _tool_state(tree)
    states = {unit: clean_states / _state(tree, unit, tool) for unit in units}
    for state in states.values():
        if state.exists():
            state.touch()
    changed = [unit for unit, state in states.items() if not state.exists()]
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        results = pool.map(lambda group: check_group(tree, group, states), _groups(tree, changed))
    # A header's complaint comes once for each unit that includes it.
    return list(dict.fromkeys(line for lines in results for line in lines))


def forget_unused(clean_states: Path, before: float) -> None:
    """Removes those that were last of use before that time."""
    for state in clean_states.iterdir():
        try:
            if state.stat().st_mtime < before:
                state.unlink()
        except FileNotFoundError:
            continue  # by another clone's lint


def _bazel(tree: SourceTree, *arguments: str) -> str:
    result = subprocess.run(
        ["bazel", *arguments], cwd=tree.root, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode != 0:
        raise BuildError(f"bazel {arguments[0]} failed:\n" + "\n".join(result.stderr.splitlines()[-20:]))
    return result.stdout


def _translation_units(tree: SourceTree) -> list[Unit]:
    generators = _bazel(
        tree, "query", "--noshow_progress", "kind(genrule, //proto/... + //tests/...)"
    ).split()
    if generators:
        _bazel(tree, "build", "--noshow_progress", *generators)
    folders = {path.parts[0] for path in tree.files if path.name == "BUILD"} & set(ALLOWED)
    output = _bazel(
        tree,
        "aquery",
        "--noshow_progress",
        "--output=jsonproto",
        "--include_artifacts=false",
        f"mnemonic(CppCompile, {' + '.join(f'//{folder}/...' for folder in sorted(folders))})",
    )
    generated = Path(_bazel(tree, "info", "bazel-bin").strip())
    # All that was fetched: the execution root has only what the last build needed.
    external = Path(_bazel(tree, "info", "output_base").strip()) / "external"
    units = {}
    for action in json.loads(output).get("actions", []):
        arguments = action["arguments"]
        source = Path(arguments[arguments.index("-c") + 1])
        if (tree.root / source).is_file() and not source.parts[0].startswith("bazel-"):
            names = _meaningful_flags(source, arguments)
            flags = tuple(_real_place(name, generated, external) for name in names)
            units[source] = Unit(source, flags, names)
    return [units[source] for source in sorted(units)]


def _meaningful_flags(source: Path, arguments: list[str]) -> tuple[str, ...]:
    """Include folders, definitions and the language."""
    flags = ["-std=c11" if source.suffix == ".c" else "-std=c++20"]
    for position, argument in enumerate(arguments):
        if argument in FLAGS_WITH_VALUE:
            flags += [argument, arguments[position + 1]]
        elif argument.startswith(("-I", "-D", "-isystem", "-iquote")) and not argument.startswith(
            ("-D__", "-D_FORTIFY")
        ):
            flags.append(argument)
    return tuple(flags)


def _real_place(flag: str, generated: Path, external: Path) -> str:
    """A folder of generated or of foreign code by its real place; anything else as it is."""
    if flag.startswith("bazel-out/"):
        return str(generated / Path(*Path(flag).parts[3:]))
    if flag.startswith("external/"):
        return str(external / Path(*Path(flag).parts[1:]))
    return flag


def _tool_state(tree: SourceTree) -> str:
    version = subprocess.run(
        [VENV_BIN / "clang-tidy", "--version"], check=True, capture_output=True, text=True
    )
    read = [tree.read(Path(name)) for name in (".clang-tidy", "WORKSPACE")]
    return version.stdout + "".join(read) + " ".join([*CLANG_FLAGS, NOT_FOR_C])


def _state(tree: SourceTree, unit: Unit, tool: str) -> str:
    """A name for all that its outcome depends on."""
    state = hashlib.sha256(tool.encode())
    state.update(" ".join(unit.names).encode())
    for path in sorted(included_files(tree.root, unit.source)):
        state.update(f"\0{path}\0".encode())
        state.update((tree.root / path).read_bytes())
    return state.hexdigest()


def _groups(tree: SourceTree, units: list[Unit]) -> list[list[Unit]]:
    """C++ units of the same flags in groups; each C unit, whose checks are others, alone."""
    grouped: list[list[Unit]] = []
    alike: dict[tuple[str, ...], dict[Path, Unit]] = {}
    for unit in units:
        if unit.source.suffix == ".c":
            grouped.append([unit])
        else:
            alike.setdefault(unit.flags, {})[unit.source] = unit
    for members in alike.values():
        texts = {source: tree.read(source) for source in members}
        headers = {
            source: [tree.read(path) for path in included_files(tree.root, source) if path.suffix == ".h"]
            for source in members
        }
        # No larger than that each processor has some.
        size = min(GROUP_SIZE, max(1, len(units) // (4 * len(os.sched_getaffinity(0)))))
        grouped += [[members[source] for source in group] for group in groups(texts, headers, size)]
    return grouped


def check_group(tree: SourceTree, group: list[Unit], states: dict[Unit, Path]) -> list[str]:
    """The diagnostics of units with the same flags. Notes which of them are clean."""
    if len(group) > 1 and _are_clean_together(tree, group):
        for unit in group:
            states[unit].touch()
        return []
    return [line for unit in group for line in _check_unit(tree, unit, states[unit])]


def _are_clean_together(tree: SourceTree, group: list[Unit]) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".cc", encoding="utf-8") as joined:
        joined.write("\n".join(tree.read(unit.source) for unit in group))
        joined.flush()
        try:
            return _clang_tidy(tree, Path(joined.name), group[0].flags).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def _check_unit(tree: SourceTree, unit: Unit, clean: Path) -> list[str]:
    try:
        result = _clang_tidy(tree, unit.source, unit.flags)
    except subprocess.TimeoutExpired:
        return [f"{unit.source}: clang-tidy took more than {TIMEOUT_S} s"]
    if result.returncode == 0:
        clean.touch()
        return []
    lines = [line.removeprefix(f"{tree.root}/").removeprefix("./") for line in result.stdout.splitlines()]
    found = [line for line in lines if DIAGNOSTIC.search(line)]
    return found or [f"{unit.source}: clang-tidy failed: {(result.stdout + result.stderr)[-400:]}"]


def _clang_tidy(tree: SourceTree, source: Path, flags: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [str(VENV_BIN / "clang-tidy"), "--quiet", "--config-file=.clang-tidy"]
    command += [NOT_FOR_C] if source.suffix == ".c" else []
    return subprocess.run(
        [*command, str(source), "--", *flags, *CLANG_FLAGS],
        cwd=tree.root,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )


def included_files(root: Path, source: Path) -> set[Path]:
    """The source and all that it includes of the tree, also indirectly; for a generated header its
    .proto."""
    reached = {source}
    waiting = [source]
    while waiting:
        for path in _direct_includes(root, waiting.pop()):
            if path not in reached:
                reached.add(path)
                waiting.append(path)
    return reached


@cache
def _direct_includes(root: Path, path: Path) -> tuple[Path, ...]:
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".proto":
        targets = re.findall(r'^import "([^"]+)";', text, re.MULTILINE)
    else:
        targets = [re.sub(r"(\.grpc)?\.pb\.h$", ".proto", target) for _, target in INCLUDE.findall(text)]
    return tuple(Path(target) for target in targets if (root / target).is_file())
