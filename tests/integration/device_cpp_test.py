"""A trainer in C++ with tensors on its GPU, compiled against the headers alone and linked with the
library that the Python package brings: on emulated GPUs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.emulated_gpus import start_on_gpus
from tests.integration.processes import ROOT, python

SOURCE = Path(__file__).parent / "programs" / "device_sums.cc"

# Started as a rank is, it becomes the program.
BECOMES = """
    import os
    import sys

    os.execv(sys.argv[1], sys.argv[1:])
"""


def library() -> Path:
    command = "import pathlib, ringd; print(pathlib.Path(ringd.__file__).parent / 'libringd.so.1')"
    return Path(subprocess.check_output([python(), "-c", command], text=True, timeout=60).strip())


def build(folder: Path) -> Path:
    """The program. What it includes comes from a folder that has ringd's headers and no more."""
    headers = folder / "include" / "client"
    headers.mkdir(parents=True)
    for header in (ROOT / "client").glob("*.h*"):
        shutil.copy(header, headers)
    program = folder / "device_sums"
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{headers.parent}"]
    linked = [str(library()), f"-Wl,-rpath,{library().parent}", "-ldl"]
    command = ["g++", *flags, "-o", str(program), str(SOURCE), *linked]
    subprocess.run(command, check=True, timeout=120)
    return program


@pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)
def test_a_program_in_cpp_has_tensors_on_its_gpu(cluster: Cluster, layout: list[int]) -> None:
    program = build(cluster.folder)
    job = start_on_gpus(cluster, BECOMES, layout, arguments=[str(program)])
    job.expect_success()
    job.expect_output("sums are right")
