"""As many pretended nodes as a rank exchange takes, on one machine."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cluster import Cluster
from tests.integration.processes import python

PROGRAM = Path(__file__).parent / "programs" / "many_nodes.py"
NODES = 16


def test_sixteen_nodes_sum_right(cluster: Cluster) -> None:
    # 5 s on two busy cores.
    options = ["--nodes", str(NODES), "-n", "1", "--timeout", "90"]
    ran = cluster.ringctl("run", *options, "--", python(), PROGRAM, timeout_s=110)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(f"right sums on {NODES} nodes") == NODES, ran.stdout
