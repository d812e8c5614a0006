"""What a trainer of the soak has said: events and steps (programs/trainer.cc)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RankStep:
    """One rank's step; times in ns of the machine's monotonic clock."""

    begin_ns: int
    end_ns: int
    waited_ns: int


@dataclass(frozen=True)
class Step:
    """One step of a job: from when its last rank has begun to when its last rank has ended.

    So a rank that comes late to a step by its own fault makes no step long.
    """

    number: int
    begin_ns: int
    end_ns: int
    #: How long its ranks together waited for processors.
    waited_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def overlaps(self, begin_ns: int, end_ns: int) -> bool:
        return self.begin_ns < end_ns and self.end_ns > begin_ns


class Record:
    """Follows one rank's output while it is written."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self.events: list[dict[str, Any]] = []
        self.steps: list[RankStep] = []
        #: Changes of its further communicator.
        self.changes: list[RankStep] = []
        self.other: list[str] = []

    def read(self) -> Record:
        """Takes in what has come since."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(("S ", "C ")):
                _, begin, end, waited = (int(word) for word in line.split()[1:])
                kind = self.steps if line.startswith("S") else self.changes
                kind.append(RankStep(begin, end, waited))
            elif line.startswith('{"event"'):
                self.events.append(json.loads(line))
            else:
                self.other.append(line)
        return self

    def find(self, event: str) -> dict[str, Any] | None:
        """The first event of this name so far."""
        return next((said for said in self.read().events if said["event"] == event), None)


def job_steps(records: list[Record], first: int = 0) -> list[Step]:
    """The steps from number `first` on that all ranks have ended."""
    return _together([record.read().steps for record in records], first)


def job_changes(records: list[Record]) -> list[Step]:
    """The changes of the job's further communicator that all ranks have ended."""
    return _together([record.read().changes for record in records])


def _together(each: list[list[RankStep]], first: int = 0) -> list[Step]:
    steps = []
    for number in range(first, min(len(of_rank) for of_rank in each)):
        ranks = [of_rank[number] for of_rank in each]
        begin = max(rank.begin_ns for rank in ranks)
        end = max(rank.end_ns for rank in ranks)
        steps.append(Step(number, begin, end, sum(rank.waited_ns for rank in ranks)))
    return steps
