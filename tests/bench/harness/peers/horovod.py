"""Horovod, built from source where that is asked for: it takes minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .. import paths
from ..session import Launch
from ..site import Site
from .peer import HUGE_HEAP_VARIABLES, Peer, Say, Unavailable, run_quietly
from .torch_gloo import TORCH, TorchGloo
from .training import TRAININGS, training_command, training_environment

HOROVOD = "horovod==0.28.1"
BUILD_SECONDS = 3600
# What setup.py and the launcher import.
TOOLS = ["setuptools<70", "wheel", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging", "numpy"]
# Its CMakeLists asks for C++14; torch's headers need 17.
COMPILER = """#!/bin/bash
for argument do
  shift
  case $argument in -std=*) argument=-std=c++17 ;; esac
  set -- "$@" "$argument"
done
exec g++ "$@"
"""


class Horovod(Peer):
    """Configurations: `gloo`, `gloo-huge-heap`, and those of TRAININGS. HOROVOD_PYTHON names an
    interpreter that imports horovod.torch, or is `build`."""

    name = "horovod"
    # Its threads look for work, and agree with all ranks that there is none, every
    # HOROVOD_CYCLE_TIME ms.
    never_idle = True

    def __init__(self) -> None:
        self._python = ""

    def install(self, say: Say, may_install: bool) -> None:
        own = paths.PEERS / "horovod" / "bin" / "python"
        wanted = os.environ.get("HOROVOD_PYTHON", "")
        for python in (wanted, str(own), sys.executable):
            if python and has_horovod(python):
                self._python = python
                return
        if wanted != "build" or not may_install:
            raise Unavailable(
                "not installed (HOROVOD_PYTHON names an interpreter that has it, or is `build`)"
            )
        build(own.parent.parent, say, may_install)
        self._python = str(own)

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        topology = site.topology
        port = site.port()
        store = [self._python, str(paths.DRIVERS / "horovod_rendezvous.py"), str(port)]
        launches = [Launch(site.inside(0, store))]
        for rank in range(topology.ranks):
            node, local_rank = divmod(rank, topology.ranks_per_node)
            environment = {
                "HOROVOD_RANK": str(rank),
                "HOROVOD_SIZE": str(topology.ranks),
                "HOROVOD_LOCAL_RANK": str(local_rank),
                "HOROVOD_LOCAL_SIZE": str(topology.ranks_per_node),
                "HOROVOD_CROSS_RANK": str(node),
                "HOROVOD_CROSS_SIZE": str(topology.nodes),
                "HOROVOD_HOSTNAME": f"node{node}",
                "HOROVOD_CONTROLLER": "gloo",
                "HOROVOD_CPU_OPERATIONS": "gloo",
                "HOROVOD_GLOO_IFACE": site.interface,
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": site.address(0),
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
                "HOROVOD_CYCLE_TIME": "0.01",
                # A rank that is stopped in a wait must not find it overdue when it goes on.
                "HOROVOD_GLOO_TIMEOUT_SECONDS": "3600",
                "OMP_NUM_THREADS": "1",
            }
            driver = [self._python, str(paths.DRIVERS / "horovod_driver.py"), str(control)]
            if configuration == "gloo-huge-heap":
                environment |= HUGE_HEAP_VARIABLES
            if configuration in TRAININGS:
                environment |= training_environment(configuration)
                driver = training_command(self._python, control, self.name, rank)
            launches.append(Launch(site.inside(node, driver), environment))
        return launches

    def start_seconds(self) -> float:
        return 120.0


def build(venv: Path, say: Say, may_install: bool) -> None:
    """Horovod with Gloo, for the torch that the peer of that name uses. Raises Unavailable."""
    torch = TorchGloo()
    torch.install(say, may_install)
    say(f"building {HOROVOD} for {TORCH}, which takes minutes")
    run_quietly(["/usr/bin/python3", "-m", "venv", "--clear", str(venv)], 120)
    (venv / "lib/python3.11/site-packages/torch.pth").write_text(
        f"{torch.site_packages()}\n", encoding="utf-8"
    )
    pip = [str(venv / "bin" / "pip"), "install", "-q"]
    run_quietly([*pip, *TOOLS], 600)
    compiler = venv / "g++17"
    compiler.write_text(COMPILER, encoding="ascii")
    compiler.chmod(0o755)
    choices = {"GLOO": 1, "PYTORCH": 1}
    refusals = {"MPI": 1, "TENSORFLOW": 1, "MXNET": 1}
    settings = [f"CXX={compiler}", *(f"HOROVOD_WITH_{name}={value}" for name, value in choices.items())]
    settings += [f"HOROVOD_WITHOUT_{name}={value}" for name, value in refusals.items()]
    run_quietly(["env", *settings, *pip, "--no-build-isolation", "--no-deps", HOROVOD], BUILD_SECONDS)
    if not has_horovod(str(venv / "bin" / "python")):
        raise Unavailable(f"{HOROVOD} was built and can't be imported")


def has_horovod(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('horovod') is None)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False)
    except OSError:
        return False
    return done.returncode == 0
