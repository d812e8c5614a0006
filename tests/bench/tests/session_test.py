"""The side channel against a driver of a few lines: answers, failures and hangs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from harness.paths import DRIVERS
from harness.session import Launch, PeerError, Session, UnsupportedError, control_folder
from harness.work import Batch, Way, one_tensor

DRIVER = """
import os, sys, time
sys.path.insert(0, {drivers!r})
from control import Channel
channel = Channel(sys.argv[1], int(sys.argv[2]))
channel.ready("test 1")
for work in channel.works():
    if work.dtype == "f16":
        channel.problem(work, "unsupported", "no f16")
    elif work.mode == "async":
        channel.problem(work, "error", "wrong sum")
    elif work.mode == "bucket":
        print("about to die", flush=True)
        os._exit(3)
    elif work.mode == "null":
        time.sleep(60)
    else:
        channel.seconds(work, [0.5] * work.samples)
"""
BATCH = Batch(inner=1, samples=4, warmup=0)
TENSOR = one_tensor(64)


def begin(tmp_path: Path, freeze: bool = False) -> Session:
    program = tmp_path / "driver.py"
    program.write_text(DRIVER.format(drivers=str(DRIVERS)), encoding="ascii")
    folder = control_folder(2)
    launches = [
        Launch(
            ["/bin/sh", "-c", f"echo $$ >> {tmp_path}/pids; exec {sys.executable} {program} {folder} {rank}"]
        )
        for rank in range(2)
    ]
    made = Session("test", folder, 2, launches, freeze)
    made.ready(20)
    return made


@pytest.fixture
def session(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = begin(tmp_path)
    try:
        yield made
    finally:
        made.stop()
    assert not made.folder.exists()


def are_stopped(tmp_path: Path) -> bool:
    """Within a second: a signal takes a moment to arrive."""
    pids = (tmp_path / "pids").read_text(encoding="ascii").split()
    for _ in range(100):
        states = [
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")")[1].split()[0] for pid in pids
        ]
        if states == ["T"] * len(pids):
            return True
        time.sleep(0.01)
    return False


def test_a_batch_is_answered_with_its_samples(session: Session) -> None:
    assert session.version == "test 1"
    assert session.run(TENSOR, "f32", Way("x"), BATCH, 20) == [0.5] * 4


def test_what_a_peer_cannot_do_is_no_failure(session: Session) -> None:
    with pytest.raises(UnsupportedError, match="no f16"):
        session.run(TENSOR, "f16", Way("x"), BATCH, 20)
    assert session.run(TENSOR, "f32", Way("x"), BATCH, 20) == [0.5] * 4


def test_a_wrong_sum_is_a_failure(session: Session) -> None:
    with pytest.raises(PeerError, match="wrong sum"):
        session.run(TENSOR, "f32", Way("x", "async"), BATCH, 20)


def test_a_process_that_dies_is_reported_with_what_it_printed(session: Session) -> None:
    with pytest.raises(PeerError, match=r"ended with 3.*about to die"):
        session.run(TENSOR, "f32", Way("x", "bucket"), BATCH, 20)


def test_a_hanging_driver_is_given_up_and_ended(session: Session) -> None:
    started = time.monotonic()
    with pytest.raises(PeerError, match="no answer in time"):
        session.run(TENSOR, "f32", Way("x", "null"), BATCH, 0.5)
    session.stop()
    assert time.monotonic() - started < 15


def test_who_never_idles_is_stopped_while_it_has_no_work(tmp_path: Path) -> None:
    session = begin(tmp_path, freeze=True)
    assert are_stopped(tmp_path)
    assert session.run(TENSOR, "f32", Way("x"), BATCH, 20) == [0.5] * 4
    assert are_stopped(tmp_path)
    started = time.monotonic()
    session.stop()
    assert time.monotonic() - started < 5
    assert not session.folder.exists()


def test_others_are_not_stopped(session: Session, tmp_path: Path) -> None:
    assert not are_stopped(tmp_path)
