"""What is held open and read before the checks, with files in the place of devices."""

from __future__ import annotations

import os
from pathlib import Path

from tests.gpu.harness.warm import kept_initialised, read_through


def open_files() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # of the listing itself
    return found


def test_the_gpus_files_are_open_meanwhile_and_no_longer(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia-uvm"):
        (tmp_path / name).touch()
    held = [tmp_path / "nvidia0", tmp_path / "nvidia1"]
    with kept_initialised(tmp_path) as files:
        assert files == held
        assert {str(file) for file in held} <= open_files()
    assert not {str(file) for file in held} & open_files()


def test_a_machine_without_gpus_has_nothing_to_hold(tmp_path: Path) -> None:
    with kept_initialised(tmp_path) as files:
        assert files == []


def test_a_library_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"x" * 3_000_000)
    read_through([tmp_path / "none", tmp_path / "libcuda.so.1"])
