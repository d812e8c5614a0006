"""Trainings: the same script for every library (drivers/training_driver.py)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .. import paths
from ..session import Launch
from ..site import Site
from .peer import Peer, Say, Unavailable

# Each rank has a core of its own where there are enough; or all have the first, and the others are
# idle.
TRAININGS: dict[str, dict[str, str]] = {
    "training": {},
    "training-one-core": {"BENCH_ONE_CORE": "1"},
}

# What a step frees stays with the process, and no page is fresh in the next one: a quarter of some
# steps' processor time. ringd.torch sets the same by itself; so every library and the reference
# have it.
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}


def training_command(python: str, control: Path, library: str, rank: int) -> list[str]:
    """One rank of a training."""
    return [python, str(paths.DRIVERS / "training_driver.py"), str(control), library, str(rank)]


def training_environment(configuration: str) -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", **KEPT_MEMORY, **TRAININGS[configuration]}


def project_python() -> str:
    """An interpreter that has torch. Raises Unavailable."""
    for python in (os.environ.get("RINGD_PYTHON", ""), str(paths.REPOSITORY / ".venv" / "bin" / "python")):
        if python and Path(python).exists() and imports_torch(python):
            return python
    raise Unavailable("no interpreter with torch; run deploy/setup, or set RINGD_PYTHON")


def imports_torch(python: str) -> bool:
    """Whether this interpreter has torch with distributed support; importing it would take
    seconds."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


class Alone(Peer):
    """Not a library: the same training by ranks that exchange nothing, so what computing takes."""

    name = "alone"

    def __init__(self) -> None:
        self._python = ""

    def install(self, say: Say, may_install: bool) -> None:
        self._python = project_python()

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        environment = training_environment(configuration)
        return [
            Launch(
                site.inside(
                    rank // site.topology.ranks_per_node,
                    training_command(self._python, control, self.name, rank),
                ),
                environment,
            )
            for rank in range(site.topology.ranks)
        ]

    def start_seconds(self) -> float:
        return 120.0
