"""What the harness asks of a peer."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from .. import paths
from ..session import Launch
from ..site import Site

# One heap of huge pages that is never given back. It takes the MPIs' large sizes from 36 to 13 ms,
# since no call pays for the first touch of its temporary memory; the benchmark's own tensors lie on
# huge pages too.
HUGE_HEAP_VARIABLES = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=9000000000000"
    ":glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1"
}
(HUGE_HEAP,) = (f"{name}={value}" for name, value in HUGE_HEAP_VARIABLES.items())

Say = Callable[[str], None]


class Unavailable(Exception):
    """The peer is not installed and cannot be."""


class Peer(ABC):
    """A library that reduces, beside ringd. Thread safety: one thread."""

    name: str
    # Its processes work on while they wait for their turn: they are stopped meanwhile.
    never_idle = False

    @abstractmethod
    def install(self, say: Say, may_install: bool) -> None:
        """Makes the peer usable. Idempotent. Raises Unavailable."""

    @abstractmethod
    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        """The processes that run `site.topology` with one of the peer's configurations."""

    def start_seconds(self) -> float:
        """How long the processes may take to report themselves ready."""
        return 60.0


def wheels(venv: Path, packages: list[str], proof: Path, say: Say, may_install: bool) -> None:
    """Installs wheels into a virtual environment; `proof` exists once that is done."""
    if proof.exists():
        return
    if not may_install:
        raise Unavailable(f"{venv.name} is not installed (--no-install)")
    say(f"installing {' '.join(packages)}")
    run_quietly(["/usr/bin/python3", "-m", "venv", str(venv)], 120)
    run_quietly([str(venv / "bin" / "pip"), "install", "-q", *packages], 900)
    if not proof.exists():
        raise Unavailable(f"{' '.join(packages)} did not bring {proof}")


def compile_driver(sources: list[Path], target: Path, flags: list[str]) -> None:
    """Compiles a C driver when it is older than its sources."""
    sources_time = max(source.stat().st_mtime for source in paths.DRIVERS.glob("*.[ch]"))
    if target.exists() and target.stat().st_mtime > sources_time:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", str(target)]
    run_quietly([*command, *map(str, sources), *flags], 120)


def run_quietly(argv: list[str], seconds: float) -> None:
    """Raises Unavailable with the end of the output when the command fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(argv[:4])}: {(done.stderr or done.stdout)[-600:]}")
