"""Rooms ask an operation for its traits (proto/operations/operation_traits.h), not for its kind by
name: a new kind is a row there, and perhaps a primitive on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.lint.source_tree import SourceTree

NAMED = re.compile(r"\bCollectiveKind::k[A-Z]\w*")
# What a record holds before anybody has said what it is.
DEFAULT = re.compile(r"\bCollectiveKind\s+\w+\s*=\s*CollectiveKind::k\w+;")
# The table; the choice of a primitive; and what ringds ask for among themselves.
MAY_NAME = (
    "proto/",
    "backends/collectives/operation.cc",
    "daemon/lanes/wire/wire_lane.cc",
    "daemon/jobs/measuring/link_prober.cc",
    "tests/",
)


def check(tree: SourceTree) -> list[str]:
    """One line for each kind that a room names."""
    return [problem for path in tree.cpp for problem in check_file(path, tree.read(path))]


def check_file(path: Path, text: str) -> Iterator[str]:
    if path.as_posix().startswith(MAY_NAME):
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = NAMED.search(line)
        if found and not DEFAULT.search(line):
            yield (
                f"{path}:{number}: {found.group()}: ask TraitsOf() for what it does "
                "(proto/operations/operation_traits.h)"
            )
