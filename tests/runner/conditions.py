"""How tests run: how often, on which processors, and beside what."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

# Spins until the process that started it has gone, however that ended. A Ctrl-C is for the one that
# started it.
BUSY_PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    for _ in range(100_000):
        pass
"""
END_TIMEOUT_S = 10


@dataclass(frozen=True)
class Conditions:
    """What a run of tests finds. The default: once, on all processors, beside nothing."""

    runs: int = 1
    # All tests share one processor.
    one_core: bool = False
    # Beside a process for each processor that never sleeps.
    busy: bool = False

    @property
    def cores(self) -> list[int]:
        allowed = sorted(os.sched_getaffinity(0))
        # The last one: interrupts are often the first one's.
        return allowed[-1:] if self.one_core else allowed

    @property
    def prefix(self) -> list[str]:
        """What stands before the command of a test."""
        return ["taskset", "--cpu-list", str(self.cores[0])] if self.one_core else []

    @contextlib.contextmanager
    def beside(self) -> Iterator[list[int]]:
        """Runs the busy processes, if there are to be any, until the block is left; their pids."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for core in self.cores if self.busy else []:
                command = [sys.executable, "-c", BUSY_PROGRAM, str(core), str(os.getpid())]
                processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
            yield [process.pid for process in processes]
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait(END_TIMEOUT_S)
