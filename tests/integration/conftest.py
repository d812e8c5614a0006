"""Fixtures of the integration tests."""

from __future__ import annotations

import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Programs that the tests start hear Ctrl-C, also where the tests run in a shell's background
    (SIGINT ignored)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _many_descriptors() -> None:
    """Crowds of strangers connect from here; shells often have a limit of 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    assert most >= 4096, f"tests with many connections need `ulimit -Hn` of 4,096, not {most}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster without nodes yet, ended with the test."""
    # Not tmp_path: its name is too long for a Unix socket.
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    made = Cluster(folder)
    try:
        yield made
    finally:
        try:
            made.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(made.shared_memory, ignore_errors=True)


@pytest.fixture(params=["trainer", "engine"])
def who_launches(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """Whose process launches on GPUs (device_launch)."""
    cluster.settings["device_launch"] = request.param
    return str(request.param)


@pytest.fixture(params=["trainer", "engine", "host"])
def way(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The way of tensors on GPUs (device_launch): by NCCL, whoever launches, or by the host's
    memory."""
    cluster.settings["device_launch"] = request.param
    return str(request.param)
