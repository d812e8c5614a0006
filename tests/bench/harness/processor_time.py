"""What work costs in processor time: that of a contestant's processes, and of the whole machine.

A process is charged with what interrupts do while it runs, so neither figure alone is the truth.
The machine's also has what the kernel does for a line while a processor is idle, where most packets
of a slow line are handled; and it has everybody else's work. The processes' has neither.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of the first line of /proc/stat after its name (proc_stat(5)).
IDLE, IOWAIT, STEAL = 3, 4, 7


@dataclasses.dataclass(frozen=True)
class ProcessorTime:
    """Seconds, summed over all processors."""

    processes: float = 0.0
    machine: float = 0.0

    def __add__(self, other: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.processes + other.processes, self.machine + other.machine)

    def __truediv__(self, calls: int) -> ProcessorTime:
        return ProcessorTime(self.processes / calls, self.machine / calls)


class Meter:
    """Starts to count on construction, for one Unix session and all descendants of its leader."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._tasks = self._run_times()
        self._busy = machine_busy_seconds()

    def spent(self) -> ProcessorTime:
        """Since construction. Threads that have ended in between are not counted among the
        processes'."""
        machine = machine_busy_seconds() - self._busy
        after = self._run_times()
        processes = sum(ran - self._tasks.get(task, 0) for task, ran in after.items())
        return ProcessorTime(processes / 1e9, max(0.0, machine))

    def _run_times(self) -> dict[str, int]:
        """Nanoseconds that each thread has run so far."""
        times = {}
        for pid in processes_of(self._leader):
            for task in Path(f"/proc/{pid}/task").glob("*"):
                if text := text_of(task / "schedstat"):
                    times[task.name] = int(text.split()[0])
        return times


def machine_busy_seconds() -> float:
    """Processor time since some moment in which no processor was idle. Idle time is exact, to a
    tick; all else in /proc/stat is sampled, and misses what sleeps before the next tick."""
    fields = [int(field) for field in text_of(Path("/proc/stat")).split("\n", 1)[0].split()[1:]]
    idle = fields[IDLE] + fields[IOWAIT] + fields[STEAL]
    return time.monotonic() * (os.cpu_count() or 1) - idle / TICKS_PER_SECOND


def processes_of(leader: int) -> set[int]:
    """The processes of a Unix session, and descendants of its leader that have left it."""
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        # Behind the name, which may contain anything: state, parent, group, session.
        if not entry.name.isdigit() or not (fields := text_of(entry / "stat").rpartition(")")[2].split()):
            continue
        pid, parent, session = int(entry.name), int(fields[1]), int(fields[3])
        children.setdefault(parent, []).append(pid)
        if session == leader:
            found.add(pid)
    unseen = list(found)
    while unseen:
        for child in children.get(unseen.pop(), []):
            if child not in found:
                found.add(child)
                unseen.append(child)
    return found


def text_of(path: Path) -> str:
    """Empty if the process has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
