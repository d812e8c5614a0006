"""The compiled probe."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness.paths import DRIVERS


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("probe") / "probe"
    source = str(DRIVERS / "probe.c")
    command = [
        "gcc",
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(target),
        source,
        "-lpthread",
    ]
    subprocess.run(command, check=True, timeout=60)
    return target


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("ranks", ["1", "2", "4"])
@pytest.mark.parametrize("payload", ["4", "5000", "1048576", "4194309"])
def test_a_sweep_is_timed_for_any_size_and_number_of_ranks(program: Path, ranks: str, payload: str) -> None:
    done = run(program, "sweep", ranks, payload)
    assert done.returncode == 0
    times = [float(word) for word in done.stdout.split()]
    assert len(times) == 4
    assert all(0 < time < 10 for time in times)


def test_a_sweep_of_nobody_is_refused(program: Path) -> None:
    assert run(program, "sweep", "0", "4096").returncode != 0
    assert run(program, "copy", "4096").returncode == 2
