"""The failure tests run twice: with ringd and trainers of one user, and with ringd as a user of its
own.

As on a cluster, where ringd is a service: the kernel then hides from it how trainers end, until
somebody reaps them.
"""

from __future__ import annotations

import os

import pytest

from tests.integration.cluster import RINGD_UID, Cluster, kernel_shows_exits


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `one_user` run once; so do all without root, or on a kernel that never shows how
    trainers end."""
    once = metafunc.definition.get_closest_marker("one_user") is not None
    once = once or os.geteuid() != 0 or not kernel_shows_exits()
    if "cluster" in metafunc.fixturenames and not once:
        metafunc.parametrize("cluster", ["one user", "two users"], indirect=True)


@pytest.fixture
def cluster(cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A cluster without nodes yet, as in the other integration tests."""
    if getattr(request, "param", "one user") == "two users":
        cluster.run_ringd_as(RINGD_UID)
        cluster.reap_as_launchers_do()
    return cluster
