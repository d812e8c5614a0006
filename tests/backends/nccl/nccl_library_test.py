"""The real NCCL, as far as it can be tried without a GPU: its library has every function of
`backends/nccl`, and its header agrees with `nccl_types.h`.

The wheel (305 MB) is installed for this test alone, into `.cache/nccl`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "deploy/requirements/nccl.txt"
FOLDER = ROOT / ".cache/nccl"
CUDA_HEADERS = ROOT / ".venv/lib/python3.11/site-packages/nvidia/cu13/include"
# Headers that nccl.h includes and uses nothing of; they would need another wheel.
LEFT_OUT = ("-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__", "-D__CUDA_FP8_H__")
OPEN_NCCL = "//tests/backends/nccl:open_nccl"


def run(*command: str | Path) -> str:
    """What the command prints; fails with all it says if it does."""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def nccl() -> Path:
    """The wheel's folder with `include` and `lib`, of the version that the requirements name."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = FOLDER / "requirements.sha256"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off")
        run(*pip, "--no-deps", "--require-hashes", f"--target={FOLDER}", "-r", REQUIREMENTS)
        stamp.write_text(wanted)
    return FOLDER / "nvidia/nccl"


def pinned_version() -> str:
    for line in REQUIREMENTS.read_text().splitlines():
        if line.startswith("nvidia-nccl-cu13=="):
            return line.removeprefix("nvidia-nccl-cu13==").rstrip(" \\")
    raise AssertionError(f"{REQUIREMENTS} names no NCCL")


@pytest.mark.timeout(600)
def test_the_real_library_has_every_function_and_tells_its_version(nccl: Path) -> None:
    run("bazel", "build", "--color=no", "--curses=no", OPEN_NCCL)
    program = Path(run("bazel", "info", "bazel-bin").strip()) / "tests/backends/nccl/open_nccl"
    assert run(program, nccl / "lib/libnccl.so.2") == f"{pinned_version()}\n"


@pytest.mark.timeout(600)
def test_the_real_header_has_the_same_numbers_structures_and_functions(nccl: Path) -> None:
    compiler = ("g++", "-std=c++20", "-fsyntax-only", "-I.")
    headers = ("-isystem", nccl / "include", "-isystem", CUDA_HEADERS)
    run(*compiler, *LEFT_OUT, *headers, "tests/backends/nccl/abi_check.cc")
