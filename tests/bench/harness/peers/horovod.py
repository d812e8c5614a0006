"""Horovod, only where somebody has installed it: it is built from source, which takes minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .. import paths
from ..session import Launch
from ..site import Site
from .peer import Peer, Say, Unavailable


class Horovod(Peer):
    """Configuration: `gloo`, on one host. HOROVOD_PYTHON names an interpreter that imports horovod.torch."""

    name = "horovod"

    def __init__(self) -> None:
        self._python = ""

    def install(self, say: Say, may_install: bool) -> None:
        for python in (os.environ.get("HOROVOD_PYTHON", ""), sys.executable):
            if python and has_horovod(python):
                self._python = python
                return
        raise Unavailable("not installed (HOROVOD_PYTHON names an interpreter that has it)")

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        if site.shaped:
            raise Unavailable("its launcher needs ssh between nodes")
        driver = [self._python, str(paths.DRIVERS / "horovod_driver.py"), str(control)]
        launcher = [self._python, "-m", "horovod.runner.launch", "-np", str(site.topology.ranks), "--gloo"]
        environment = {"HOROVOD_CYCLE_TIME": "0.01", "OMP_NUM_THREADS": "1"}
        return [Launch(site.inside(0, [*launcher, *driver]), environment)]

    def start_seconds(self) -> float:
        return 120.0


def has_horovod(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('horovod') is None)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False)
    except OSError:
        return False
    return done.returncode == 0
