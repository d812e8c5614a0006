"""Gloo through torch.distributed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .. import paths
from ..session import Launch
from ..site import Site
from .peer import HUGE_HEAP_VARIABLES, Peer, Say, Unavailable, wheels
from .training import TRAININGS, project_python, training_command, training_environment

TORCH = "torch==2.13.0"


class TorchGloo(Peer):
    """Configurations: `gloo`, `gloo-huge-heap`, and those of TRAININGS. Uses the project's own
    Python environment when that has torch."""

    name = "torch"

    def __init__(self) -> None:
        self._python = ""

    def install(self, say: Say, may_install: bool) -> None:
        try:
            self._python = project_python()
        except Unavailable:
            venv = paths.PEERS / "torch"
            wheels(venv, [TORCH, "numpy"], venv / "lib/python3.11/site-packages/torch", say, may_install)
            self._python = str(venv / "bin" / "python")

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        topology = site.topology
        port = site.port()
        launches = []
        for rank in range(topology.ranks):
            environment = {
                "RANK": str(rank),
                "WORLD_SIZE": str(topology.ranks),
                "MASTER_ADDR": site.address(0),
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": site.interface,
                "OMP_NUM_THREADS": "1",
            }
            argv = [self._python, str(paths.DRIVERS / "torch_driver.py"), str(control)]
            if configuration == "gloo-huge-heap":
                environment |= HUGE_HEAP_VARIABLES
            if configuration in TRAININGS:
                environment |= training_environment(configuration)
                argv = training_command(self._python, control, self.name, rank)
            launches.append(Launch(site.inside(rank // topology.ranks_per_node, argv), environment))
        return launches

    def start_seconds(self) -> float:
        return 120.0

    def site_packages(self) -> str:
        """Where its interpreter has torch."""
        code = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
        done = subprocess.run(
            [self._python, "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        return str(Path(done.stdout.strip()).parent)
