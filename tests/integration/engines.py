"""Which engine serves a rank."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.integration.cluster import Node, Rank
from tests.integration.processes import Child, wait_until

#: Of each ringd: README of daemon/supervisor.
STANDING_ENGINES = 2


def shared_memory(pid: int) -> set[str]:
    """Inodes of the unnamed files that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "/memfd:" in line}


def engine_on(node: Node, trainer: Child) -> int:
    """The engine of this node that shares memory with a trainer."""
    memory = shared_memory(trainer.pid)
    sharing = []
    for pid in node.engines():
        # Another one may end just now.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if memory & shared_memory(pid):
                sharing.append(pid)
    assert len(sharing) == 1, f"{trainer} shares memory with {sharing}"
    return sharing[0]


def engine_of(rank: Rank) -> int:
    return engine_on(rank.node, rank)


def has_ended(pid: int) -> bool:
    """Also true of a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def engines_stand_ready(node: Node, jobs: int) -> bool:
    """Whether a ringd with so many jobs has their engines, those that stand ready, and no others,
    not even ended ones."""
    engines = node.engines()
    return len(engines) == jobs + STANDING_ENGINES and not any(has_ended(pid) for pid in engines)


def await_standing_engines(node: Node, jobs: int) -> None:
    """Until a ringd with so many jobs has replaced the engines that they took: what it holds then
    is what it holds as long as nothing happens."""
    count = jobs + STANDING_ENGINES
    wait_until(lambda: engines_stand_ready(node, jobs), f"{node} has {count} engines")
    time.sleep(0.1)  # the last one's pipe
