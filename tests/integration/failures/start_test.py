"""A job that can't start says who is missing."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_until_joining,
)

JOINS = """
    from trainer import Trainer, run

    run(Trainer)
"""


#: Where a whole job starts under a ringd that waits for a moment only.
PATIENT = {"RINGD_START_TIMEOUT": "60s"}


@pytest.mark.one_user
@pytest.mark.parametrize(
    ("layout", "missing", "named"),
    [
        ([3], [1], "rank 1 did not join"),
        ([2, 2], [1, 3], "ranks 1, 3 did not join"),
        ([2, 2], [2, 3], "ranks 2, 3 did not join"),
    ],
    ids=["same node", "both nodes", "a whole node"],
)
def test_missing_ranks_are_listed_after_the_start_deadline(
    cluster: Cluster, layout: list[int], missing: list[int], named: str
) -> None:
    nodes = cluster.start_nodes(len(layout), start_timeout="5s")
    began = time.monotonic()
    present = [rank for rank in range(sum(layout)) if rank not in missing]
    job = start_trainers(cluster, JOINS, layout, only_ranks=present)
    errors = wait_for_all(job.ranks, "error")
    expect_within(errors, began, 10)
    assert min(event["at"] for event in errors) - began > 4.9
    text = the_same_text(errors)
    assert {error["kind"] for error in errors} == {"DeadlineExceededError"}
    expect_words(text, f"job '{job.job_id}'", named, "present")
    for rank in job.ranks:
        expect_words(text, rank.node.name)
    if missing == [2, 3]:
        assert nodes[1].name not in text
    # Nothing of it is left behind: the job starts when all come.
    start_trainers(cluster, JOINS, layout, job_id=job.job_id, environment=PATIENT).expect_success()


@pytest.mark.one_user
@pytest.mark.parametrize("first", [0, 1])
def test_missing_ranks_are_listed_also_if_nodes_come_one_after_the_other(
    cluster: Cluster, first: int
) -> None:
    cluster.start_nodes(3, start_timeout="5s")
    jobs = [start_trainers(cluster, JOINS, [1, 1, 1], only_ranks=[first], job_id="late")]
    time.sleep(2.5)
    jobs.append(start_trainers(cluster, JOINS, [1, 1, 1], only_ranks=[1 - first], job_id="late"))
    text = the_same_text(wait_for_all([job.ranks[0] for job in jobs], "error"))
    expect_words(text, "within 5 s", "rank 2 did not join; present: ", "node0 (rank 0)", "node1 (rank 1)")


@pytest.mark.one_user
def test_where_no_rank_of_the_coordinators_node_comes_the_others_hear_which_node_that_is(
    cluster: Cluster,
) -> None:
    nodes = cluster.start_nodes(3, start_timeout="5s")
    job = start_trainers(cluster, JOINS, [2, 1, 1], only_ranks=[2, 3])
    for rank, error in zip(job.ranks, wait_for_all(job.ranks, "error"), strict=True):
        assert error["kind"] == "DeadlineExceededError"
        reason = (
            f"node0 at {nodes[0].peer_address}",
            "no rank of the job has joined there, where rank 0 should be",
        )
        expect_words(
            error["text"], f"job '{job.job_id}'", *reason, f"on {rank.node.name} 1 of 1 local ranks joined"
        )
    start_trainers(cluster, JOINS, [2, 1, 1], job_id=job.job_id, environment=PATIENT).expect_success()


@pytest.mark.one_user
@pytest.mark.parametrize(
    ("present", "words"),
    [
        ([0, 1], "waits for rank 2 to join, since "),
        ([2], "waits for an answer of the ringd at"),
    ],
    ids=["rank 0's node", "the other node alone"],
)
def test_ranks_that_wait_for_others_to_join_hear_for_whom(
    cluster: Cluster, present: list[int], words: str
) -> None:
    cluster.start_nodes(2, start_timeout="30s")
    job = start_trainers(cluster, JOINS, [2, 1], only_ranks=present, job_id="late")
    for rank in job.ranks:
        rank.expect_output(f"ringd: job 'late' {words}")
    rest = [rank for rank in range(3) if rank not in present]
    start_trainers(cluster, JOINS, [2, 1], only_ranks=rest, job_id="late").expect_success()
    job.expect_success()


@pytest.mark.one_user
def test_a_trainer_may_be_more_patient_than_ringd(cluster: Cluster) -> None:
    cluster.start_nodes(2, start_timeout="500ms")
    first = start_trainers(cluster, JOINS, [1, 1], only_ranks=[1], environment=PATIENT, job_id="late")
    time.sleep(1.5)
    rest = start_trainers(cluster, JOINS, [1, 1], only_ranks=[0], environment=PATIENT, job_id="late")
    first.expect_success()
    rest.expect_success()


@pytest.mark.one_user
def test_no_coordinator_at_the_rendezvous_is_said(cluster: Cluster) -> None:
    cluster.start_nodes(1, start_timeout="1s")
    nobody = {"RINGD_RENDEZVOUS": "127.0.0.1:1", "WORLD_SIZE": "2", "RANK": "1"}
    job = start_trainers(cluster, JOINS, [1], environment=nobody)
    (error,) = wait_for_all(job.ranks, "error")
    expect_words(error["text"], "127.0.0.1:1")


@pytest.mark.tells_exit
@pytest.mark.parametrize("layout", [[3], [1, 1, 1]], ids=str)
def test_a_rank_killed_while_the_others_gather_ends_the_start(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), start_timeout="60s")
    job = start_trainers(cluster, JOINS, layout, only_ranks=[0, 1])
    for rank in job.ranks:
        wait_until_joining(cluster, rank)
    killed = time.monotonic()
    os.kill(job.ranks[1].pid, signal.SIGKILL)
    (error,) = wait_for_all(job.ranks[:1], "error")
    expect_within([error], killed, 1.0)
    expect_words(error["text"], "rank 1", f"pid {job.ranks[1].pid}", job.ranks[1].node.name)
    # A node whose own ranks are all there can't know whether others have been told that the job
    # runs.
    how_far = "before all ranks had joined" if layout == [3] else f"while job '{job.job_id}' was starting"
    expect_words(error["text"], "signal 9", how_far)


def kill_ringd_while_ranks_gather(
    cluster: Cluster, layout: list[int], present: list[int], victim: int
) -> tuple[list[Node], list[dict[str, Any]]]:
    """Two nodes, and what the present ranks hear at once when that one's ringd is killed."""
    nodes = cluster.start_nodes(2, start_timeout="60s")
    job = start_trainers(cluster, JOINS, layout, only_ranks=present)
    for rank in job.ranks:
        wait_until_joining(cluster, rank)
    killed = time.monotonic()
    nodes[victim].kill()
    errors = wait_for_all(job.ranks, "error")
    expect_within(errors, killed, 1.0)
    return nodes, errors


def test_a_coordinator_killed_while_ranks_gather_is_named(cluster: Cluster) -> None:
    nodes, errors = kill_ringd_while_ranks_gather(cluster, [2, 1], [0, 2], victim=0)
    expect_words(errors[0]["text"], f"ringd (pid {nodes[0].pid})")
    expect_words(
        errors[1]["text"],
        nodes[0].peer_address,
        f"ended or lost its connection while job '{cluster.jobs[-1].job_id}' was starting",
    )


def test_a_ringd_killed_while_ranks_gather_is_told_to_the_other_nodes(cluster: Cluster) -> None:
    nodes, errors = kill_ringd_while_ranks_gather(cluster, [1, 2], [0, 1], victim=1)
    name = f"ringd on {nodes[1].name} (rank 1)"
    expect_words(errors[0]["text"], f"{name} ended or lost its connection before all ranks had joined")
