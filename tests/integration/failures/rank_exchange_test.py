"""What happens to operations that ranks carry out between themselves when one of them is late,
stopped or killed."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
    wait_for_warning,
)
from tests.integration.kept_trial import INNER, LEAF, NODES, start_nodes_of_a_tree

# All add again and again; rank ODD does so until the test's word, and then does what it was told.
STEADY = """
    import os
    import signal
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        odd = trainer.rank == int(os.environ["ODD"])
        for step in range(int(os.environ["STEPS"])):
            if odd and step == 100:
                say("at it", pid=os.getpid())
                if os.environ["DOES"] == "sleeps":
                    time.sleep(float(os.environ["FOR"]))
                elif os.environ["DOES"] == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
            total = trainer.all_reduce_awaited("loss", step, count=int(os.environ["COUNT"]))
            assert total == trainer.size * step
            if step == 99:
                say("under way")


    run(main)
"""


#: Who is odd: of two nodes, rank 0 and 1 on the first, 2 on the other; or of a tree of nodes with a
#: rank on each.
PAIR = [(False, 0, "root"), (False, 1, "other rank of the root's node"), (False, 2, "other node")]
TREE = [(True, 0, "root"), (True, INNER, "inner node"), (True, LEAF, "leaf")]


def places(cases: list[tuple[bool, int, str]]) -> list[Any]:
    return [pytest.param(tree, odd, id=f"{'tree' if tree else 'pair'}, {name}") for tree, odd, name in cases]


def start(
    cluster: Cluster,
    tree: bool,
    *,
    odd: int = -1,
    does: str = "",
    seconds: float = 0,
    steps: int = 200,
    **settings: object,
) -> JobRun:
    """Nodes with these settings, and ranks that add a number, or in a tree some kilobytes."""
    if tree:
        start_nodes_of_a_tree(cluster, **settings)
    else:
        cluster.start_nodes(2, **settings)
    environment = {"ODD": odd, "DOES": does, "FOR": seconds, "STEPS": steps, "COUNT": 1000 if tree else 4}
    return start_trainers(
        cluster,
        STEADY,
        [1] * NODES if tree else [2, 1],
        environment={name: str(value) for name, value in environment.items()},
    )


@pytest.mark.one_user
@pytest.mark.parametrize(("tree", "odd"), places(PAIR + TREE))
def test_a_late_rank_is_waited_for_and_named(cluster: Cluster, tree: bool, odd: int) -> None:
    job = start(cluster, tree, odd=odd, does="sleeps", seconds=2.5, stall_warning="500ms")
    late = job.ranks[odd]
    for rank in job.ranks:
        if rank is not late:
            wait_for_warning(rank, f"rank {odd}, pid {late.pid}", late.node.name, "'loss'")
    job.expect_success()


@pytest.mark.tells_exit
@pytest.mark.parametrize(("tree", "odd"), places(PAIR + TREE))
def test_a_killed_rank_is_named_at_once(cluster: Cluster, tree: bool, odd: int) -> None:
    job = start(cluster, tree, odd=odd, does="dies")
    killed = job.ranks[odd]
    died = wait_for_event(killed, "at it")["at"]
    others = [rank for rank in job.ranks if rank is not killed]
    errors = wait_for_all(others, "error")
    expect_words(the_same_text(errors), f"rank {odd}, pid {killed.pid}", killed.node.name)
    expect_within(errors, died, 2)


@pytest.mark.parametrize(("tree", "odd"), places([PAIR[0], PAIR[2], *TREE]))
def test_a_stopped_rank_is_named_wherever_it_was_stopped(cluster: Cluster, tree: bool, odd: int) -> None:
    job = start(cluster, tree, steps=1_000_000, stall_warning="1s")
    stopped = job.ranks[odd]
    wait_for_all(job.ranks, "under way")
    for attempt in range(3):
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            for rank in job.ranks:
                if rank is stopped:
                    continue
                seen = attempt + 1
                deadline = time.monotonic() + 15
                while rank.output.count(f"rank {odd}, pid {stopped.pid}") < seen:
                    assert time.monotonic() < deadline, rank.output
                    time.sleep(0.02)
                expect_words(rank.output, "stopped", stopped.node.name, "'loss'")
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        time.sleep(0.3)
    assert all(rank.running() for rank in job.ranks), job.transcript()


@pytest.mark.parametrize(("tree", "odd"), places([PAIR[0], PAIR[2], *TREE]))
def test_a_killed_ringd_ends_its_job_everywhere(cluster: Cluster, tree: bool, odd: int) -> None:
    job = start(cluster, tree, steps=1_000_000)
    wait_for_all(job.ranks, "under way")
    job.ranks[odd].node.kill()
    died = time.monotonic()
    expect_within(wait_for_all(job.ranks, "error"), died, 5)
