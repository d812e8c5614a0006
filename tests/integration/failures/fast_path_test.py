"""What happens to operations that ranks carry out between themselves when one of them is late, stopped or killed."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
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
            assert trainer.all_reduce_awaited("loss", step, count=int(os.environ["COUNT"])) == trainer.size * step
            if step == 99:
                say("under way")


    run(main)
"""


def environment(
    odd: int, does: str, seconds: float = 0, *, steps: int = 200, count: int = 4
) -> dict[str, str]:
    return {"ODD": str(odd), "DOES": does, "FOR": str(seconds), "STEPS": str(steps), "COUNT": str(count)}


@pytest.mark.parametrize("odd", [0, 1, 2], ids=["root", "other rank of the root's node", "other node"])
def test_a_late_rank_is_waited_for_and_named(cluster: Cluster, odd: int) -> None:
    cluster.start_nodes(2, stall_warning="500ms")
    job = start_trainers(cluster, STEADY, [2, 1], environment=environment(odd, "sleeps", 2.5))
    late = job.ranks[odd]
    for rank in job.ranks:
        if rank is not late:
            rank.expect_output("ringd: ", 20)
            warning = next(line for line in rank.output.splitlines() if line.startswith("ringd: "))
            expect_words(warning, f"rank {odd}, pid {late.pid}", late.node.name, "'loss'")
    job.expect_success()


@pytest.mark.parametrize("odd", [0, 1, 2], ids=["root", "other rank of the root's node", "other node"])
def test_a_killed_rank_is_named_at_once(cluster: Cluster, odd: int) -> None:
    cluster.start_nodes(2)
    job = start_trainers(cluster, STEADY, [2, 1], environment=environment(odd, "dies"))
    killed = job.ranks[odd]
    died = wait_for_event(killed, "at it")["at"]
    others = [rank for rank in job.ranks if rank is not killed]
    errors = wait_for_all(others, "error")
    expect_words(the_same_text(errors), f"rank {odd}, pid {killed.pid}", killed.node.name)
    expect_within(errors, died, 2)


@pytest.mark.parametrize("odd", [0, 2], ids=["root", "other node"])
def test_a_stopped_rank_is_named_wherever_it_was_stopped(cluster: Cluster, odd: int) -> None:
    cluster.start_nodes(2, stall_warning="1s")
    job = start_trainers(cluster, STEADY, [2, 1], environment=environment(-1, "", steps=1_000_000))
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


@pytest.mark.parametrize("victim", [0, 1], ids=["the root's node", "other node"])
def test_a_killed_ringd_ends_its_job_everywhere(cluster: Cluster, victim: int) -> None:
    nodes = cluster.start_nodes(2)
    job = start_trainers(cluster, STEADY, [1, 1], environment=environment(-1, "", steps=1_000_000))
    wait_for_all(job.ranks, "under way")
    nodes[victim].kill()
    died = time.monotonic()
    expect_within(wait_for_all(job.ranks, "error"), died, 5)


# ---- by a tree of six nodes, with a rank on each; of these 4 is node 5's parent ------------------------------------------

COUNT = 1000
ALONE = [1] * NODES


@pytest.mark.timeout(120)
@pytest.mark.parametrize("odd", [0, INNER, LEAF], ids=["root", "inner node", "leaf"])
def test_by_a_tree_a_late_rank_is_waited_for_and_named(cluster: Cluster, odd: int) -> None:
    start_nodes_of_a_tree(cluster, stall_warning="500ms")
    job = start_trainers(cluster, STEADY, ALONE, environment=environment(odd, "sleeps", 3, count=COUNT))
    late = job.ranks[odd]
    for rank in job.ranks:
        if rank is not late:
            rank.expect_output("ringd: ", 20)
            warning = next(line for line in rank.output.splitlines() if line.startswith("ringd: "))
            expect_words(warning, f"rank {odd}, pid {late.pid}", late.node.name, "'loss'")
    job.expect_success(30)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("odd", [0, INNER, LEAF], ids=["root", "inner node", "leaf"])
def test_by_a_tree_a_killed_rank_is_named_at_once(cluster: Cluster, odd: int) -> None:
    start_nodes_of_a_tree(cluster)
    job = start_trainers(cluster, STEADY, ALONE, environment=environment(odd, "dies", count=COUNT))
    killed = job.ranks[odd]
    died = wait_for_event(killed, "at it")["at"]
    others = [rank for rank in job.ranks if rank is not killed]
    errors = wait_for_all(others, "error")
    expect_words(the_same_text(errors), f"rank {odd}, pid {killed.pid}", killed.node.name)
    expect_within(errors, died, 2)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("victim", [0, INNER, LEAF], ids=["root", "inner node", "leaf"])
def test_by_a_tree_a_killed_ringd_ends_its_job_everywhere(cluster: Cluster, victim: int) -> None:
    nodes = start_nodes_of_a_tree(cluster)
    steady = environment(-1, "", steps=1_000_000, count=COUNT)
    job = start_trainers(cluster, STEADY, ALONE, environment=steady)
    wait_for_all(job.ranks, "under way")
    nodes[victim].kill()
    died = time.monotonic()
    expect_within(wait_for_all(job.ranks, "error"), died, 5)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("odd", [0, INNER, LEAF], ids=["root", "inner node", "leaf"])
def test_by_a_tree_a_stopped_rank_is_named(cluster: Cluster, odd: int) -> None:
    start_nodes_of_a_tree(cluster, stall_warning="1s")
    steady = environment(-1, "", steps=1_000_000, count=COUNT)
    job = start_trainers(cluster, STEADY, ALONE, environment=steady)
    stopped = job.ranks[odd]
    wait_for_all(job.ranks, "under way")
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        for rank in job.ranks:
            if rank is not stopped:
                rank.expect_output(f"rank {odd}, pid {stopped.pid}", 20)
                expect_words(rank.output, "stopped", stopped.node.name, "'loss'")
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    time.sleep(0.3)
    assert all(rank.running() for rank in job.ranks), job.transcript()
