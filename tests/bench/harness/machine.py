"""The machine's state: figures taken in different states are not alike.

On many virtual machines two processors are sometimes near each other (a cache line's round trip of
about 0.1 us) and sometimes far (0.3 to 0.5 us), for tens of seconds at a time; it changes small
all-reduces by factors.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import time
from pathlib import Path

from . import paths
from .peers.peer import compile_driver

NEAR_BELOW_NS = 220.0
STATES = ("near", "far", "mixed")


@dataclasses.dataclass(frozen=True)
class Description:
    """What does not change during a run."""

    date: str
    processor: str
    cores: int
    memory_gib: float
    kernel: str
    huge_pages: str


def describe() -> Description:
    """Reads the description of this machine."""
    processor = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return Description(
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        processor=processor,
        cores=os.cpu_count() or 1,
        memory_gib=round(pages / 2**30, 1),
        kernel=platform.release(),
        huge_pages=huge.read_text(encoding="ascii").strip() if huge.exists() else "unknown",
    )


class Probe:
    """Runs the compiled probe. A probe takes 4 to 20 ms, so it fits around every batch."""

    def __init__(self) -> None:
        self._program = paths.BINARIES / "probe"

    def build(self) -> None:
        """Compiles the probe if need be. Raises Unavailable."""
        compile_driver([paths.DRIVERS / "probe.c"], self._program, ["-lpthread"])

    def line_ns(self) -> float:
        """Round trip of a cache line between the first two cores; 0 on a machine with one."""
        if (os.cpu_count() or 1) < 2:
            return 0.0
        return float(self._run("line", "0", "1"))

    def sweep_seconds(self, ranks: int, payload: int) -> float:
        """The fastest way to read and write so many bytes of each rank once, where they are, on all
        cores: in the caches if all ranks' bytes fit there. Takes up to some 100 ms for 128 MiB, a
            few for 1."""
        return min(float(word) for word in self._run("sweep", str(ranks), str(payload)).split())

    def burn(self, cpu: int) -> subprocess.Popen[bytes]:
        """Starts a neighbour that keeps one core busy; the caller ends it."""
        return subprocess.Popen([str(self._program), "burn", str(cpu)])

    def _run(self, *arguments: str) -> str:
        argv = [str(self._program), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def state_of(before_ns: float, after_ns: float) -> str:
    """The state during a batch, from the probes around it."""
    if before_ns < NEAR_BELOW_NS and after_ns < NEAR_BELOW_NS:
        return "near"
    if before_ns >= NEAR_BELOW_NS and after_ns >= NEAR_BELOW_NS:
        return "far"
    return "mixed"


def load_average() -> float:
    """Processes that want a core, averaged over the last minute: other people's work spoils a
    run."""
    return os.getloadavg()[0]
