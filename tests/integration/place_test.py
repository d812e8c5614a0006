"""Where ranks are, by every way of starting them."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.cluster import Cluster
from tests.integration.processes import clean_environment, python

PLACES = """
    import ringd

    with ringd.Context() as context:
        print("place", *context.place[:9])
"""


def places(output: str) -> list[list[str]]:
    lines = [line.split("place ", 1)[1].split() for line in output.splitlines() if "place " in line]
    return sorted(lines, key=lambda line: int(line[0]))


def test_ranks_of_uneven_nodes_find_their_places(cluster: Cluster) -> None:
    cluster.start_nodes(3)
    job = cluster.start_job(PLACES, ranks_per_node=[1, 3, 2])
    job.expect_success()
    # rank size local_rank local_size cross_rank cross_size node_count node_index homogeneous
    assert places("\n".join(rank.output for rank in job.ranks)) == [
        line.split()
        for line in (
            "0 6 0 1 0 3 3 0 False",
            "1 6 0 3 1 3 3 1 False",
            "2 6 1 3 0 2 3 1 False",
            "3 6 2 3 0 1 3 1 False",
            "4 6 0 2 2 3 3 2 False",
            "5 6 1 2 1 2 3 2 False",
        )
    ]


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 2), (2, 2)])
def test_ringctl_run_places_ranks(cluster: Cluster, nodes: int, ranks: int) -> None:
    program = cluster.folder / "places.py"
    program.write_text("import ringd\nc = ringd.Context()\nprint('place', *c.place[:9])\nc.close()\n")
    layout = ["--nodes", str(nodes)] if nodes > 1 else []
    result = cluster.ringctl("run", *layout, "-n", str(ranks), "--", python(), program)
    assert result.returncode == 0, result.stdout + result.stderr
    size = nodes * ranks
    assert places(result.stdout) == [
        f"{r} {size} {r % ranks} {ranks} {r // ranks} {nodes} {nodes} {r // ranks} True".split()
        for r in range(size)
    ]


def test_a_process_without_launcher_is_alone(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    program = cluster.folder / "alone.py"
    program.write_text("import ringd\nprint('place', *ringd.Context().place[:9])\n")
    result = subprocess.run(
        [python(), program],
        env=clean_environment() | {"RINGD_SOCKET": str(node.socket)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert places(result.stdout) == [["0", "1", "0", "1", "0", "1", "1", "0", "True"]]


def test_torchrun_places_ranks(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    program = cluster.folder / "places.py"
    # The ranks share one pipe: a line must be one write, or two lines may mix.
    program.write_text(
        "import os, ringd\n"
        "c = ringd.Context()\n"
        "os.write(1, (' '.join(['place', *map(str, c.place[:9])]) + '\\n').encode())\n"
        "c.close()\n"
    )
    result = subprocess.run(
        [python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program],
        env=clean_environment() | {"RINGD_SOCKET": str(node.socket)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert places(result.stdout) == [
        ["0", "2", "0", "2", "0", "1", "1", "0", "True"],
        ["1", "2", "1", "2", "0", "1", "1", "0", "True"],
    ]


def test_jobs_beside_each_other_do_not_mix(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    source = """
        import sys
        import ringd.torch as hvd
        import torch

        hvd.init()
        mine = float(sys.argv[1])
        for _ in range(20):
            result = hvd.allreduce(torch.full((1000,), mine), op=hvd.Sum, name="tensor")
            assert torch.equal(result, torch.full((1000,), mine * hvd.size())), result
    """
    jobs = [cluster.start_job(source, [1, 1], arguments=[value]) for value in ("1", "10")]
    for job in jobs:
        job.expect_success()
