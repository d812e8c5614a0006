"""Who waited for a processor, and when: programs/processors.cc, and what is excused by it."""

from __future__ import annotations

import bisect
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.records import Step

#: Samples are this far apart, and a little more.
SLACK_NS = 12_000_000


@dataclass(frozen=True)
class Excuse:
    """Times in ns.

    Within a step the job's ranks and engines, and the threads of the kernel that pass packets on
    have waited for processors, or a processor has stood still. Processors' time that ringds and the
    job's engines used meanwhile is taken off: as far as that goes, it may have been ringd that kept
    the others waiting. Engines of other jobs are processes like their trainers.
    """

    ranks: int
    engines: int
    packets: int
    gap: int
    used: int

    @property
    def seconds(self) -> float:
        return max(0, self.ranks + self.engines + self.packets + self.gap - self.used) / 1e9

    def __str__(self) -> str:
        ms = [f"{ns / 1e6:.0f}" for ns in (self.ranks, self.engines, self.packets, self.gap, self.used)]
        return (
            f"waits in ms: ranks {ms[0]}, engines {ms[1]}, packets {ms[2]}, a processor stood still {ms[3]};"
            f" ringds and its engines used {ms[4]}"
        )


class Samples:
    """What soak_processors has said of some ringds and of the engines of these jobs, in this order:
    one name for each engine."""

    def __init__(self, ringds: int, jobs: Iterable[str]) -> None:
        self._ringds = ringds
        self._jobs = list(jobs)
        self.gaps: list[tuple[int, int]] = []
        self._times: list[int] = []
        self._samples: list[list[int]] = []

    def add(self, line: str) -> None:
        """One line of the program's."""
        kind, *numbers = line.split()
        if kind == "G":
            begin, end = map(int, numbers)
            self.gaps.append((begin, end))
        elif kind == "R":
            self._times.append(int(numbers[0]))
            self._samples.append([int(number) for number in numbers[1:]])

    def longest_gap_ns(self, begin_ns: int, end_ns: int) -> int:
        """The longest time within that span for which a processor ran nobody who wanted it."""
        within = [min(end, end_ns) - max(begin, begin_ns) for begin, end in self.gaps]
        return max([0, *within])

    def excuse(self, step: Step, job: str | None) -> Excuse:
        """What of the step's time is not ringd's, and why. No job: of a step in which ringd has no
        part."""
        engines = packets = used = 0
        first = max(0, bisect.bisect_right(self._times, step.begin_ns - SLACK_NS) - 1)
        last = min(len(self._times) - 1, bisect.bisect_left(self._times, step.end_ns + SLACK_NS))
        if last > first:
            packets, *each = (
                after - before
                for before, after in zip(self._samples[first], self._samples[last], strict=True)
            )
            of_engines = each[self._ringds :]
            for name, waited_ns, used_ns in zip(self._jobs, of_engines[::2], of_engines[1::2], strict=True):
                engines += waited_ns if name == job else 0
                used += used_ns if name == job else 0
            used += sum(each[: self._ringds]) if job is not None else 0
        gap = self.longest_gap_ns(step.begin_ns, step.end_ns)
        return Excuse(step.waited_ns, engines, packets, gap, used)


class Processors(Samples):
    """Follows soak_processors, which watches the ringds with these pids, and engines, which are
    given by job and node. Ownership: owns the process."""

    def __init__(
        self, program: Path, ringds: Sequence[int], engines: Mapping[tuple[str, int], int], log: Path
    ) -> None:
        super().__init__(len(ringds), (job for job, _ in engines))
        self._log = log
        self._offset = 0
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(program), *map(str, ringds), "--", *map(str, engines.values())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def read(self) -> None:
        """Takes in what has come since."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode().splitlines():
            self.add(line)

    def running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
