"""ringctl run where a disk is full: it says that, and what could not be written."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.failures.events import expect_words
from tests.integration.processes import binary, clean_environment

FULL = "No space left on device"
PAGE = 4096

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 pages."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True, timeout=60)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=60)


def fill(disk: Path, pages_left: int) -> None:
    (disk / "fill").write_bytes(b"x" * (16 - pages_left) * PAGE)


def run(*arguments: str, prepare: str = "", output: str = "") -> subprocess.CompletedProcess[str]:
    """`ringctl run` with a private ringd; with `prepare`, after it in a mount namespace of its own,
    where the programs are found although /tmp may be another."""
    programs = [binary(name).resolve() for name in ("ringctl", "ringd", "ringd-engine")]
    ringctl, ringd = (str(program) for program in programs[:2])
    outer: list[str] = []
    if prepare:
        copy = shlex.join(["cp", *(str(program) for program in programs), "/mnt/"])
        prepare = f"mount -t tmpfs tmpfs /mnt\n{copy}\n{prepare}"
        ringctl, ringd = "/mnt/ringctl", "/mnt/ringd"
        outer = ["unshare", "--mount"]
    command = [ringctl, "run", "--ringd", ringd, *arguments]
    script = f"{prepare}exec {shlex.join(command)} {output}"
    return subprocess.run(
        [*outer, "sh", "-ec", script],
        env=clean_environment() | {"RINGD_SOCKET": "/none/ringd.sock"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@as_root
def test_a_full_disk_below_tmp_is_named(disk: Path) -> None:
    fill(disk, 0)
    result = run("--", "true", prepare=f"mount --bind {disk} /tmp\n")
    assert result.returncode == 3, result.stderr
    expect_words(result.stderr, "cluster.key", FULL)


@as_root
def test_a_private_ringd_that_can_not_even_write_its_log_says_why(disk: Path) -> None:
    fill(disk, 1)  # for the key
    result = run("--", "true", prepare=f"mount --bind {disk} /tmp\n")
    assert result.returncode == 3, result.stderr
    words = ("while it started; no space is left on the disk of /tmp/ringd-", "logged nothing")
    expect_words(result.stderr, *words)


@as_root
@pytest.mark.parametrize("option", ["--log-dir", "--state-dir"])
def test_a_folder_on_a_full_disk_ends_the_run_before_it_begins(disk: Path, option: str) -> None:
    fill(disk, 0)
    result = run(option, str(disk), "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (2, "")
    expect_words(result.stderr, f"{option}: '{disk}", f"can't be written: {FULL}")


@as_root
def test_a_log_that_fills_its_disk_costs_the_run_nothing_else(disk: Path) -> None:
    much = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"
    result = run("--log-dir", str(disk), "--", "sh", "-c", much)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("end\n")
    expect_words(result.stderr, f"warning: {disk}/rank-0.out ends here", FULL)


def test_output_that_can_not_be_written_is_no_reader_that_has_gone() -> None:
    result = run("--", "echo", "x", output=">/dev/full")
    assert result.returncode == 1, result.stderr
    expect_words(result.stderr, "the output can't be written", FULL)
