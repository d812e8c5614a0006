"""ringctl drain and SIGTERM: running jobs may finish, nobody new comes in; a second SIGTERM stops
at once."""

from __future__ import annotations

import json
import signal
import time

from tests.integration.cluster import Cluster, Node
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.undisturbed import UndisturbedJob
from tests.integration.processes import wait_until

JOINS = """
    from trainer import Trainer, run

    run(Trainer)
"""

WAITS = """
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        say("in flight")
        if trainer.rank == 0:
            trainer.all_reduce("other")
        trainer.all_reduce("gradient")


    run(main)
"""


def drain(cluster: Cluster, node: Node) -> None:
    node.may_end = True
    node.send(signal.SIGTERM)

    def draining() -> bool:
        shown = cluster.ringctl("status", "--json", node=node).stdout
        return bool(shown) and json.loads(shown)["state"] == "draining"

    wait_until(draining, f"{node} drains")


def test_a_draining_ringd_finishes_its_jobs_and_takes_no_new_ones(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    job = UndisturbedJob(cluster, [1, 1])
    drain(cluster, nodes[1])
    refused = start_trainers(cluster, JOINS, [1, 1], only_ranks=[1])
    error = wait_for_event(refused.ranks[0], "error")
    assert error["kind"] == "FailedPreconditionError"
    expect_words(error["text"], "draining")
    time.sleep(0.3)
    assert nodes[1].running()
    job.finish()
    assert nodes[1].wait() == 0
    assert nodes[0].running()


def test_ringctl_drain_keeps_new_jobs_away_until_it_is_undone(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    node = nodes[1]
    job = UndisturbedJob(cluster, [1, 1])
    reply = json.loads(cluster.ringctl("drain", "--json", node=node).stdout)
    assert (reply["node_name"], reply["state"], reply["sessions"], reply["jobs"]) == (
        node.name, "draining", 1, 1,
    )  # fmt: skip
    refused = start_trainers(cluster, JOINS, [1, 1], only_ranks=[1])
    expect_words(wait_for_event(refused.ranks[0], "error")["text"], "draining", "takes no new jobs")
    expect_words(cluster.ringctl("status", node=node).stdout, "draining since", "ringctl drain --undo")

    still = cluster.ringctl("drain", "--wait", "0.3", node=node)
    assert still.returncode == 1, still.stdout
    expect_words(still.stderr, "1 trainer is still attached")
    job.finish()
    empty = cluster.ringctl("drain", "--wait", "60", node=node)
    assert empty.returncode == 0, empty.stderr
    expect_words(empty.stdout, "no trainer is attached")
    assert node.running()

    undone = cluster.ringctl("drain", "--undo", node=node)
    assert (undone.returncode, undone.stdout) == (0, f"ringd on {node.name} takes new jobs.\n")
    start_trainers(cluster, JOINS, [1, 1]).expect_success()
    # A drain that is to end ringd is the same one, and can't be undone.
    job = UndisturbedJob(cluster, [1, 1])
    assert cluster.ringctl("drain", node=node).returncode == 0
    node.may_end = True
    node.send(signal.SIGTERM)
    wait_until(
        lambda: bool(json.loads(cluster.ringctl("status", "--json", node=node).stdout)["ending"]),
        f"{node} ends",
    )
    undone = cluster.ringctl("drain", "--undo", node=node)
    assert undone.returncode == 1
    expect_words(undone.stderr, "can't be undone")
    job.finish()
    assert node.wait() == 0


def test_ringctl_run_says_that_it_does_not_use_a_draining_ringd(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    job = UndisturbedJob(cluster, [1])
    drain(cluster, node)
    run = cluster.ringctl("run", "--", "true", node=node)
    assert run.returncode == 0, run.stderr
    assert (
        f"the ringd at {node.socket} is not used (it is draining): this run starts a private one"
        in run.stderr
    )
    job.finish()


def test_a_second_sigterm_stops_at_once_and_all_ranks_hear(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    job = start_trainers(cluster, WAITS, [2, 2])
    wait_for_all(job.ranks, "in flight")
    drain(cluster, nodes[1])
    stopped = time.monotonic()
    nodes[1].send(signal.SIGTERM)
    errors = wait_for_all(job.ranks, "error")
    expect_within(errors, stopped, 1.0)
    expect_words(the_same_text(errors), f"ringd on {nodes[1].name} was stopped")
    assert {error["kind"] for error in errors} == {"JobFailedError"}
    assert nodes[1].wait() == 0
    assert nodes[0].running()
