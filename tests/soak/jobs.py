"""Jobs of the soak: several ranks of one user, on nodes of its network."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.processes import Child
from tests.soak.records import Record, Step, job_changes, job_steps


@dataclass(frozen=True)
class JobPlan:
    """`places` has the node of each rank; ranks of one node follow each other."""

    name: str
    user: str
    places: tuple[int, ...]
    secret: str = "known to the soak test"

    def placement(self, rank: int) -> dict[str, str]:
        """As a launcher tells a rank."""
        node = self.places[rank]
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self.places)),
            "LOCAL_RANK": str(self.places[:rank].count(node)),
            "LOCAL_WORLD_SIZE": str(self.places.count(node)),
            "RINGD_JOB_ID": self.name,
            "RINGD_JOB_SECRET": self.secret,
        }


class SoakRank(Child):
    """A trainer's process, or a hostile one's."""

    def __init__(
        self, number: int, node: int, command: Sequence[str], environment: dict[str, str], log: Path
    ):
        super().__init__(list(command), environment, log)
        self.number = number
        self.node = node
        self.record = Record(log)

    def __str__(self) -> str:
        return f"rank {self.number} (pid {self.pid})"


class SoakJob:
    """The ranks of one job, which are running."""

    def __init__(self, plan: JobPlan, ranks: list[SoakRank]) -> None:
        self.plan = plan
        self.ranks = ranks

    def __str__(self) -> str:
        return f"job {self.plan.name} of {self.plan.user} on nodes {list(self.plan.places)}"

    def steps(self, first: int = 0) -> list[Step]:
        return job_steps([rank.record for rank in self.ranks], first)

    def changes(self) -> list[Step]:
        return job_changes([rank.record for rank in self.ranks])

    def last_end_ns(self) -> int:
        """When the last step so far ended; 0: none has."""
        count = min(len(rank.record.read().steps) for rank in self.ranks)
        return max(rank.record.steps[count - 1].end_ns for rank in self.ranks) if count else 0

    def begins(self, timeout_s: float) -> bool:
        """Waits until all ranks have done a step; false if one ends before, or it takes longer."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if all(rank.record.find("working") for rank in self.ranks):
                return True
            if not all(rank.running() for rank in self.ranks):
                return False
            time.sleep(0.01)
        return False

    def await_event(
        self, event: str, timeout_s: float, ranks: Sequence[SoakRank] | None = None
    ) -> list[dict[str, Any] | None]:
        """Each rank's first event of that name; None of those that did not say it in time, or ended
        without."""
        asked = list(self.ranks if ranks is None else ranks)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            ended = [not rank.running() for rank in asked]
            said = [rank.record.find(event) for rank in asked]
            if all(one is not None or over for one, over in zip(said, ended, strict=True)):
                return said
            time.sleep(0.01)
        return [rank.record.find(event) for rank in asked]

    def heard(self) -> list[str]:
        """What the ranks have been told, and how they ended. Nothing of those that run and were
        told nothing."""
        lines = []
        for rank in self.ranks:
            texts = [f"{said['event']}: {said.get('text', '')}" for said in rank.record.read().events]
            told = [text for text in texts if text.startswith(("error", "warning", "wrong", "done"))]
            if rank.running() and not told:
                continue
            state = "runs" if rank.running() else f"ended with {rank.process.returncode}"
            lines.append(f"{self.plan.name} rank {rank.number} (pid {rank.pid}, node{rank.node}): {state}")
            lines += [f"    {text}" for text in [*told[-6:], *rank.record.other[-3:]]]
        return lines

    def end(self) -> None:
        """Kills what is left of it."""
        for rank in self.ranks:
            rank.send(signal.SIGKILL)
        for rank in self.ranks:
            rank.destroy()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
