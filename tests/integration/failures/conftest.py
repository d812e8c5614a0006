"""The failure tests run twice: with ringd and trainers of one user, and with ringd as a user of its
own, of which all cases of a test where it is told how a trainer ended, and else the first one. Some
run over UCX, too: over its TCP, and over shared memory.

As on a cluster, where ringd is a service: the kernel then hides from it how trainers end, until
somebody reaps them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.integration.cluster import RINGD_UID, Cluster
from tests.integration.processes import kernel_shows_exits

#: Ways to run a test, and `transports` of each.
OVER_UCX = {"over UCX, tcp": "tcp,self", "over UCX, shared memory": "all"}


# Before fixtures' own parameters, whichever files are asked for: names of tests must not depend on
# that.
@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `one_user` run with one user alone; so do all without root, or on a kernel that
    never shows how trainers end. Tests marked `over_ucx` run over UCX, too."""
    if "cluster" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    ways = ["one user"]
    if marked("one_user") is None and os.geteuid() == 0 and kernel_shows_exits():
        ways.append("two users")
    if marked("over_ucx") is not None:
        ways += OVER_UCX
    if len(ways) > 1:
        metafunc.parametrize("cluster", ways, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One node has nobody to speak to over UCX. To be another user makes no difference to most
    tests' cases."""
    of_two_users: set[tuple[str, str]] = set()

    def is_vain(item: pytest.Item) -> bool:
        values: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        return values.get("cluster") in OVER_UCX and len(values.get("layout", [1, 1])) == 1

    def is_another_case(item: pytest.Item) -> bool:
        values: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if values.get("cluster") != "two users" or item.get_closest_marker("tells_exit") is not None:
            return False
        test = (str(item.path), getattr(item, "originalname", item.name))
        if test in of_two_users:
            return True
        of_two_users.add(test)
        return False

    items[:] = [item for item in items if not is_vain(item) and not is_another_case(item)]


@pytest.fixture
def cluster(cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A cluster without nodes yet, as in the other integration tests."""
    way = getattr(request, "param", "one user")
    if way == "two users":
        cluster.run_ringd_as(RINGD_UID)
        cluster.reap_as_launchers_do()
    elif way in OVER_UCX:
        cluster.settings = {"backend": "ucx", "transports": OVER_UCX[way]}
    return cluster
