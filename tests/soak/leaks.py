"""What a ringd has of the system, and what it has more than before."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

#: What allocators keep of the most that was ever used at once.
RESIDENT_LIMIT_BYTES = 160 << 20
SHARED_LIMIT_BYTES = 16 << 20
#: Connections between ringds come and go with the node that fails, and close in their time.
SOCKETS_LIMIT = 4
#: Pools of threads grow to what was once needed.
THREADS_LIMIT = 16
#: What was learned of a job is kept for the next; there is a bound to that.
STATE_FILES_LIMIT = 64


@dataclass
class Holdings:
    """Of one ringd."""

    descriptors: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    threads: int = 0
    children: int = 0
    resident_bytes: int = 0
    shared_bytes: int = 0
    abstract_sockets: int = 0
    state_files: int = 0

    def as_dict(self) -> dict[str, object]:
        return {
            "descriptors": dict(self.descriptors),
            "segments": dict(self.segments),
            "threads": self.threads,
            "children": self.children,
            "resident_bytes": self.resident_bytes,
            "shared_bytes": self.shared_bytes,
            "abstract_sockets": self.abstract_sockets,
            "state_files": self.state_files,
        }


def _kind(target: str) -> str:
    """Without what is different in each: inodes, numbers of sessions."""
    return re.sub(r"\d+", "N", target.removesuffix(" (deleted)"))


def _status(pid: int, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match.group(1)) if match else 0


def holdings(pid: int, state: Path | None = None) -> Holdings:
    """What a ringd, with that folder of state, or an engine holds now."""
    found = Holdings()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.descriptors[_kind(os.readlink(f"/proc/{pid}/fd/{descriptor}"))] += 1
        except FileNotFoundError:
            continue
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:" in line:
            found.segments[_kind(line.split(None, 5)[5])] += 1
    for task in Path(f"/proc/{pid}/task").iterdir():
        found.threads += 1
        try:
            found.children += len((task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    found.resident_bytes = _status(pid, "RssAnon") << 10
    found.shared_bytes = _status(pid, "RssShmem") << 10
    names = [line.split()[7:] for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    found.abstract_sockets = sum(1 for name in names if name and name[0].startswith("@"))
    if state is not None and state.exists():
        found.state_files = sum(1 for path in state.rglob("*") if path.is_file())
    return found


def leaks(before: Holdings, after: Holdings) -> list[str]:
    """What there is more of."""
    found = []
    for what, counts, earlier in (
        ("descriptors", after.descriptors, before.descriptors),
        ("segments", after.segments, before.segments),
    ):
        found += [
            f"{what}: {count} of {kind}, before {earlier[kind]}"
            for kind, count in sorted(counts.items())
            if count > earlier[kind] + (SOCKETS_LIMIT if kind.startswith("socket:") else 0)
        ]
    for what, now, then, limit in (
        ("threads", after.threads, before.threads, THREADS_LIMIT),
        ("child processes", after.children, before.children, 0),
        ("resident bytes", after.resident_bytes, before.resident_bytes, RESIDENT_LIMIT_BYTES),
        ("shared bytes", after.shared_bytes, before.shared_bytes, SHARED_LIMIT_BYTES),
        ("abstract sockets", after.abstract_sockets, before.abstract_sockets, 0),
        ("files of state", after.state_files, before.state_files, STATE_FILES_LIMIT),
    ):
        if now > then + limit:
            found.append(f"{what}: {now}, before {then}")
    return found
