"""Process sets of ringd.torch on real ringds: every function on them, and sets whose ranks wait or
die."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

PROGRAMS = Path(__file__).parent / "programs"

# Rank 0 comes to the first set only when the last one has done its work.
LATE = """
    import os
    import time
    import ringd.torch as hvd
    import torch

    first, last = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[first, last])
    rank = hvd.rank()
    while rank == 0 and not os.path.exists(os.environ["DONE"]):
        time.sleep(0.01)
    handle = hvd.allreduce_async(torch.ones(1000), op=hvd.Sum, process_set=first) if rank < 2 else None
    if rank > 0:
        for _ in range(100):
            assert hvd.allreduce(torch.ones(10), op=hvd.Sum, process_set=last).sum() == 20
        assert rank == 2 or not hvd.poll(handle)
        hvd.barrier(last)
    if rank == 2:
        open(os.environ["DONE"], "w").close()
    if handle is not None:
        assert hvd.synchronize(handle).sum() == 2000
    hvd.barrier()
    print("done", flush=True)
"""

KILLED = """
    import time
    import ringd
    import ringd.torch as hvd
    import torch

    pair, alone = hvd.ProcessSet([1, 2]), hvd.ProcessSet([0])
    hvd.init(process_sets=[pair, alone])
    if hvd.rank() == 2:
        print("ready", flush=True)
        time.sleep(60)
    try:
        if hvd.rank() == 1:
            handle = hvd.allreduce_async(torch.ones(10), process_set=pair, name="gradient")
            print("ready", flush=True)
            hvd.synchronize(handle)
        else:
            print("ready", flush=True)
            while True:  # in a set of its own, which waits for nobody
                hvd.allreduce(torch.ones(10), process_set=alone, name="own")
    except ringd.JobFailedError as error:
        print("told:", error, flush=True)
"""

# Rank 1 adds its sets the other way round, in init and later.
ORDER = """
    import ringd
    import ringd.torch as hvd

    sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]
    try:
        hvd.init(process_sets=sets[::-1] if RANK_1 else sets)
    except ringd.InvalidArgumentError as error:
        print("told:", error, flush=True)
    assert not hvd.is_initialized()
"""

# Rank 2 takes its time.
MISSING = """
    import os
    import time
    import ringd.torch as hvd

    hvd.init()
    while hvd.rank() == 2 and not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    hvd.remove_process_set(hvd.add_process_set([0, 1]))
"""


def ranks_on(nodes: int, ranks: int = 3) -> list[int]:
    """All on one node, or on one each."""
    return [ranks] if nodes == 1 else [1] * ranks


@pytest.mark.parametrize("layout", [[4], [2, 2], [1, 3]], ids=str)
def test_every_function_on_sets_that_overlap(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = cluster.start_job((PROGRAMS / "process_sets.py").read_text(), layout)
    job.expect_success(150)
    assert all("all is well" in rank.output for rank in job.ranks), job.transcript()


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_set_that_waits_for_a_rank_holds_up_no_other(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    job = cluster.start_job(LATE, ranks_on(nodes), environment={"DONE": str(cluster.folder / "done")})
    job.expect_success()
    assert job.transcript().count("done") == 3


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_death_of_a_member_is_told_to_its_set_and_to_all_others(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    job = cluster.start_job(KILLED, ranks_on(nodes))
    job.expect_output("ready")
    job.ranks[2].send(signal.SIGKILL)
    assert job.wait()[:2] == [0, 0], job.transcript()
    words = job.transcript()
    assert words.count("told: rank 2") == 2, words
    assert words.count("was killed by signal 9") == 2, words


@pytest.mark.parametrize("nodes", [1, 3])
def test_ranks_that_add_sets_in_another_order_are_told_who(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    source = ORDER.replace("RANK_1", "__import__('os').environ['RANK'] == '1'")
    job = cluster.start_job(source, ranks_on(nodes))
    job.expect_success()
    words = job.transcript()
    assert words.count("asks for a set of ranks 0, 1, but rank 1 asks for something else") == 2, words
    assert "rank 1 asks for a set of ranks 1, 2, but ranks 0, 2 ask for something else" in words, words


def test_ranks_that_wait_for_one_that_adds_no_set_are_told_so(cluster: Cluster) -> None:
    cluster.start_nodes(1, stall_warning="1s")
    go = cluster.folder / "go"
    job = cluster.start_job(MISSING, [3], environment={"GO": str(go)})
    for rank in job.ranks[:2]:
        rank.expect_output("has not submitted 'add_process_set or remove_process_set'")
    go.touch()
    job.expect_success()
