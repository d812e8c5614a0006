"""Two machines (network namespaces) with ringd's defaults and torchrun, which say what is missing.

deploy/walk has them as README says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import ROOT, Child, binary, clean_environment, python
from tests.soak.network import Network

NODES = (0, 1)
PROGRAM = "import ringd.torch as hvd\nhvd.init()\n"


class Machines:
    """Two of them. Ownership: owns every process and namespace."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []
        (folder / "train.py").write_text(PROGRAM)
        self.network = Network()

    def start_ringd(self, node: int) -> None:
        command = [binary("ringd"), "--socket", self.socket(node), "--node-name", f"machine{node}"]
        ringd = self._start(node, command, {"RINGD_STATE_DIR": str(self._folder)}, f"ringd{node}.log")
        ringd.expect_output("ringd 0")

    def torchrun(self, node: int) -> Child:
        command = [python(), "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
        place = ["--node-rank", str(node), "--master-addr", self.network.address(0), "--master-port", "29500"]
        variables = {"RINGD_SOCKET": str(self.socket(node))}
        return self._start(
            node, [*command, *place, self._folder / "train.py"], variables, f"torchrun{node}.log"
        )

    def socket(self, node: int) -> Path:
        return self._folder / f"{node}.sock"

    def _start(self, node: int, command: list[object], variables: dict[str, str], log: str) -> Child:
        parts = [*self.network.inside(node), *(str(part) for part in command)]
        environment = clean_environment() | {"PYTHONPATH": str(ROOT)} | variables
        child = Child(parts, environment, self._folder / log)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in reversed(self._children):
            child.destroy()
        self.network.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if os.geteuid() != 0:
        pytest.fail("needs root: it makes network namespaces")
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_with_the_defaults_every_rank_hears_at_once_all_that_is_missing(machines: Machines) -> None:
    for node in NODES:
        machines.start_ringd(node)
    began = time.monotonic()
    runs = [machines.torchrun(node) for node in NODES]
    for node, run in enumerate(runs):
        assert run.wait() != 0
        for words in (
            f"ringd on machine{node} serves 127.0.0.1 only",
            "peer_interface",
            "cluster_key_file",
            "RINGD_JOB_SECRET",
        ):
            assert words in run.output, run.output
    assert time.monotonic() - began < 60  # start_timeout is 2 minutes
