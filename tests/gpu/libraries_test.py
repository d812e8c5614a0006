"""What is made of what was found: GPUs, the driver, NCCL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.harness import libraries
from tests.gpu.harness.libraries import NoGpu, nccl_text, read_look

FOUND: dict[str, Any] = {
    "cuda": "/lib/libcuda.so.1",
    "cuda_version": "13.0",
    "nccl": "/lib/libnccl.so.2",
    "nccl_version": 22907,
    "nvml": "/lib/libnvidia-ml.so.1",
    "gpus": [{"name": "one", "memory_bytes": 1, "compute_capability": "9.0"}],
    "tried": ["libnccl.so.2: cannot open"],
    "device_files": ["/dev/nvidia0", "/dev/nvidiactl"],
}


def test_what_was_found_is_taken_over() -> None:
    found = read_look(json.dumps(FOUND))
    assert found.cuda == Path("/lib/libcuda.so.1")
    assert found.nccl_version == 22907
    assert [gpu["name"] for gpu in found.gpus] == ["one"]


def test_the_loader_gets_the_drivers_folder_where_it_does_not_find_nvml(tmp_path: Path) -> None:
    assert read_look(json.dumps(FOUND)).loader_folder is None
    beside = FOUND | {"nvml": "", "cuda": str(tmp_path / "libcuda.so.1")}
    assert (read_look(json.dumps(beside)).nvml, read_look(json.dumps(beside)).loader_folder) == (None, None)
    (tmp_path / libraries.NVML).touch()
    found = read_look(json.dumps(beside))
    assert (found.nvml, found.loader_folder) == (tmp_path / libraries.NVML, tmp_path)


@pytest.mark.parametrize(("missing", "word"), [({"nccl": ""}, "no NCCL"), ({"gpus": []}, "no GPU")])
def test_what_is_missing_is_told_with_what_was_looked_for(missing: dict[str, Any], word: str) -> None:
    with pytest.raises(NoGpu) as error:
        read_look(json.dumps(FOUND | missing))
    for words in (word, "libnccl.so.2: cannot open", "/dev/nvidia0, /dev/nvidiactl"):
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("number", "text"), [(22907, "2.29.7"), (23203, "2.32.3"), (2804, "2.8.4"), (21205, "2.12.5")]
)
def test_nccls_number_becomes_a_version(number: int, text: str) -> None:
    assert nccl_text(number) == text


def test_the_driver_is_that_of_the_kernel_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "version"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
    monkeypatch.setattr(libraries, "DRIVER_FILE", file)
    assert read_look(json.dumps(FOUND)).driver == "580.95.05"
    file.unlink()
    assert read_look(json.dumps(FOUND)).driver == ""
