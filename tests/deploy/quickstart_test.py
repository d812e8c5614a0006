"""What `deploy/quickstart` says where it can't do what it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integration.emulated_gpus import emulated

ROOT = Path(__file__).resolve().parents[2]
GPUS = ROOT / "deploy/quickstart_gpus.py"


def run(*command: str | Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env=os.environ | {name: str(value) for name, value in variables.items()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_without_a_driver_it_says_at_once_what_it_looked_for() -> None:
    result = run(ROOT / "deploy/quickstart", "--gpu", RINGD_CUDA_LIBRARY="/no/such/libcuda.so.1")
    assert result.returncode == 2
    assert "/no/such/libcuda.so.1: cannot open" in result.stderr
    assert "/dev/nvidia*" in result.stderr
    assert "Setting up" not in result.stdout


@pytest.mark.parametrize(("devices", "code"), [(0, 2), (2, 0)])
def test_a_driver_needs_gpus(devices: int, code: int) -> None:
    result = run(
        sys.executable,
        GPUS,
        "driver",
        RINGD_CUDA_LIBRARY=emulated("gpu/emulator/cuda/libcuda.so.1"),
        RINGD_EMULATOR_CUDA_DEVICES=str(devices),
    )
    assert result.returncode == code, result.stderr
    assert ("no GPU" in result.stderr) == (code != 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this PyTorch has CUDA")
def test_a_pytorch_without_cuda_is_told_with_its_place() -> None:
    result = run(sys.executable, GPUS, "torch")
    assert result.returncode == 2
    assert sys.executable in result.stderr
    assert torch.__version__ in result.stderr
    assert "--python" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--gpu", "--ranks", "2"], ["--python", sys.executable], ["--gpu", "--python", "/no/such/python"]],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: list[str]) -> None:
    result = run(ROOT / "deploy/quickstart", *arguments)
    assert result.returncode == 2
    assert "--python" in result.stderr
