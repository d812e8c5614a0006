"""Whole jobs over UCX: over its TCP, and over what it finds best between processes of one host,
shared memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.processes import wait_until

PROGRAMS = Path(__file__).parent / "programs"


CARRIERS = {"tcp,self": "tcp/", "all": "/memory"}


@pytest.fixture(params=list(CARRIERS), ids=["tcp", "shared memory"])
def transports(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_large_sums_are_right_over_what_was_asked_for(cluster: Cluster, transports: str) -> None:
    cluster.start_nodes(2, backend="ucx", transports=transports)
    notes = cluster.folder / "notes"
    notes.mkdir()
    job = cluster.start_job((PROGRAMS / "ring.py").read_text(), [2, 2], arguments=[str(notes), "8", "5"])

    def done() -> bool:
        assert all(rank.running() for rank in job.ranks), job.transcript()
        return all((notes / f"done{rank}").exists() for rank in range(4))

    wait_until(done, "all-reduces")
    (communicator,) = json.loads(cluster.ringctl("comms", "--json").stdout)["communicators"]
    assert communicator["backend"] == "ucx"
    (link,) = communicator["links"]
    assert CARRIERS[transports] in link["transports"]
    (notes / "end").touch()
    job.expect_success()


def test_all_reduces_of_all_kinds_are_right(cluster: Cluster, transports: str) -> None:
    cluster.start_nodes(2, backend="ucx", transports=transports)
    job = cluster.start_job((PROGRAMS / "all_reduces.py").read_text(), [1, 2])
    job.expect_success(150)
    assert all("all is well" in rank.output for rank in job.ranks), job.transcript()
