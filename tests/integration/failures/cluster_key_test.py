"""Who may take part in a job over several nodes: ringds with the cluster's key, or ranks with the
job's secret."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import (
    expect_words,
    parse_events,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
    wait_until_joining,
)

JOINS = """
    from trainer import Trainer, run

    run(Trainer)
"""
LONG_SECRET = "sixteen letters."


def another_key(folder: Path) -> Path:
    """The file of a key that no other ringd has; of the folder's owner."""
    file = folder / "another.key"
    file.touch(0o600)
    file.write_text(secrets.token_hex(32))
    os.chown(file, folder.stat().st_uid, folder.stat().st_gid)
    return file


@pytest.mark.parametrize("secret", ["", LONG_SECRET[1:]], ids=["no secret", "short secret"])
def test_a_job_over_nodes_that_anybody_could_join_is_refused(cluster: Cluster, secret: str) -> None:
    cluster.start_nodes(2, cluster_key_file="")
    job = start_trainers(cluster, JOINS, [1, 2], job_id="job", secret=secret)
    errors = wait_for_all(job.ranks, "error")
    ways_out = ("cluster_key_file", "openssl rand -hex 32", "RINGD_JOB_SECRET", "insecure_peers")
    expect_words(the_same_text(errors), "job 'job'", "several nodes", *ways_out)
    assert {error["kind"] for error in errors} == {"FailedPreconditionError"}
    # Nobody from outside can come to a job of one node.
    start_trainers(cluster, JOINS, [2], secret=secret).expect_success()


def test_a_long_secret_is_enough_without_a_cluster_key(cluster: Cluster) -> None:
    cluster.start_nodes(2, cluster_key_file="")
    start_trainers(cluster, JOINS, [1, 1], secret=LONG_SECRET).expect_success()


def test_the_operator_may_do_without_both(cluster: Cluster) -> None:
    cluster.start_nodes(2, cluster_key_file="", insecure_peers="true")
    start_trainers(cluster, JOINS, [1, 1], secret="").expect_success()


@pytest.mark.parametrize("other", ["another key", "no key"])
def test_a_ringd_with_another_cluster_key_is_refused_and_named(cluster: Cluster, other: str) -> None:
    cluster.start_nodes(1, start_timeout="10s")
    key = another_key(cluster.folder) if other == "another key" else ""
    cluster.start_nodes(1, start_timeout="10s", cluster_key_file=key)
    layout = [1, 2]
    here = start_trainers(cluster, JOINS, layout, only_ranks=[0], job_id="job", secret=LONG_SECRET)
    wait_until_joining(cluster, here.ranks[0])
    there = start_trainers(cluster, JOINS, layout, only_ranks=[1, 2], job_id="job", secret=LONG_SECRET)
    refused = wait_for_all(there.ranks, "error")
    reason = f"the ringd on node1 has {'another' if key else 'no'} cluster key"
    expect_words(the_same_text(refused), cluster.nodes[0].peer_address, "node0", reason)
    assert {error["kind"] for error in refused} == {"UnauthenticatedError"}
    # Anybody may guess, so this rank is not harmed at once; the deadline's error says it.
    waited = wait_for_event(here.ranks[0], "error")
    expect_words(waited["text"], "did not join", "turned away", reason)
    assert not parse_events(here.transcript() + there.transcript(), "joined")
