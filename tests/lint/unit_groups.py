"""Which translation units may be compiled as one, so that what they include is read once.

Their texts are joined. What one of them defines at the level of a namespace, in an unnamed one most
of all, must then have another name than what the others define, or find in headers of theirs; names
are found by the layout that clang-format gives them, at the beginning of a line. Where that misses
one, the compiler sees it, and the units are looked at one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# More of them take longer to be told apart when one has a complaint, and win little.
GROUP_SIZE = 12
# Joined, it would hold for those that follow.
_DIRECTIVE = re.compile(r"^\s*#\s*(define|undef|pragma)\b", re.MULTILINE)
_TYPE = re.compile(r"^(?:enum class|enum|class|struct|union) (\w+)", re.MULTILINE)
# What comes before its parameters, value, size or end.
_NAME = re.compile(r"([\w:~]+)\s*[=({;\[]")
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class _Names:
    own: frozenset[str]
    of_headers: frozenset[str]

    def may_meet(self, other: _Names) -> bool:
        # What both include goes with what each defines already.
        return self.own.isdisjoint(other.own | (other.of_headers - self.of_headers)) and (
            other.own.isdisjoint(self.of_headers - other.of_headers)
        )


def groups(texts: Mapping[Path, str], headers: Mapping[Path, Iterable[str]], size: int) -> list[list[Path]]:
    """Groups of at most `size`; neighbours in the order of `texts`, which share most headers, come
    together where their names allow it. `headers`: the texts of what each of them includes, also
    indirectly, of the tree."""
    found: list[list[Path]] = []
    waiting: list[tuple[list[Path], list[_Names]]] = []
    for path, text in texts.items():
        if _DIRECTIVE.search(text):
            found.append([path])
            continue
        names = _Names(defined_names(text), frozenset().union(*map(defined_names, headers[path])))
        fitting = (each for each in waiting if all(names.may_meet(member) for member in each[1]))
        group, members = next(fitting, ([], []))
        if not group:
            waiting.append((group, members))
        group.append(path)
        members.append(names)
        if len(group) == size:
            waiting = [each for each in waiting if each[0] is not group]
            found.append(group)
    return found + [group for group, _ in waiting]


@cache
def defined_names(text: str) -> frozenset[str]:
    """What `text` defines, or declares, at the level of a namespace."""
    names = set(_TYPE.findall(text))
    for line in text.splitlines():
        if not line[:1].isalpha() or line.startswith("namespace ") or _TYPE.match(line):
            continue
        name = _NAME.search(line)
        # Class::Member is defined elsewhere.
        if name is not None and "::" not in name[1] and not _MACRO.fullmatch(name[1]):
            names.add(name[1])
    return frozenset(names)
