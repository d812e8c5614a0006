"""What `deploy/quickstart` says where it can't do what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
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


RINGCTL = """#!/bin/sh
printf '%s\\n' "$@" > "$TREE/arguments"
printf '%s\\n' "$RINGD_NCCL_LIBRARY" "$PYTHONPATH" > "$TREE/variables"
exit 7
"""
# In the place of a Python whose PyTorch sees two GPUs.
PYTHON = """#!/bin/sh
case "$*" in *quickstart_gpus.py\\ torch) echo "2 /nccl/libnccl.so.2" ;; esac
"""


def test_there_is_a_rank_for_each_gpu_and_ringd_hears_where_nccl_is(tmp_path: Path) -> None:
    """In a tree with nothing but the script and what takes the place of the rest."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "dist").mkdir()
    for name in ("quickstart", "quickstart_gpus.py"):
        shutil.copy(ROOT / "deploy" / name, tmp_path / "deploy" / name)
    with zipfile.ZipFile(tmp_path / "dist" / "ringd-1.whl", "w") as wheel:
        wheel.writestr("ringd/__init__.py", "")
    programs = {
        "deploy/setup": "#!/bin/sh\n",
        "deploy/env": f"#!/bin/sh\necho export RINGD_PYTHON={sys.executable} PATH={tmp_path}:$PATH\n",
        "ringctl": RINGCTL,
        "python": PYTHON,
    }
    for name, source in programs.items():
        (tmp_path / name).write_text(source)
        (tmp_path / name).chmod(0o755)
    result = run(
        *(tmp_path / "deploy/quickstart", "--gpu", "--python", tmp_path / "python"),
        RINGD_CUDA_LIBRARY=emulated("gpu/emulator/cuda/libcuda.so.1"),
        TREE=tmp_path,
        PYTHONPATH="/before",
    )
    assert result.returncode == 1  # of the ringctl that trains nothing
    assert "did not finish (status 7)" in result.stderr
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:3] == ["run", "-n", "2"]
    assert "--nodes" not in arguments
    assert arguments[arguments.index("--") + 1] == str(tmp_path / "python")
    assert arguments[arguments.index("--device") + 1] == "cuda"
    nccl, python_path = (tmp_path / "variables").read_text().split()
    assert nccl == "/nccl/libnccl.so.2"
    own, before = python_path.split(":")
    assert own.endswith("/python")
    assert before == "/before"
