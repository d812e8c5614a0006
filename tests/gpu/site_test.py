"""What ringds and ranks on real GPUs find in their environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.harness.bundle import Bundle
from tests.gpu.harness.libraries import Libraries
from tests.gpu.harness.site import Nodes, Site
from tests.integration.cluster import Cluster


def environment(folder: Path, *, loader_folder: Path | None = None, **variables: str) -> dict[str, str]:
    libraries = Libraries(
        Path("/lib/libcuda.so.1"), Path("/lib/libnccl.so.2"), 22907, "13.0", loader_folder=loader_folder
    )
    site = Site(Bundle(folder), libraries, emulated=False, variables=variables)
    return Nodes(site, Cluster(folder), 1).cluster.environment


def test_there_are_as_many_connections_as_streams_that_may_wait(tmp_path: Path) -> None:
    assert environment(tmp_path)["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    under_mps = environment(tmp_path, CUDA_MPS_PIPE_DIRECTORY="/tmp/mps")
    assert under_mps["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"


def test_the_loader_looks_where_the_driver_is_if_it_has_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert "LD_LIBRARY_PATH" not in environment(tmp_path)
    found = environment(tmp_path, loader_folder=Path("/usr/local/nvidia/lib64"))
    assert found["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/opt/lib"
