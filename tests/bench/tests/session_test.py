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


@pytest.fixture
def session(tmp_path: Path):  # type: ignore[no-untyped-def]
    program = tmp_path / "driver.py"
    program.write_text(DRIVER.format(drivers=str(DRIVERS)), encoding="ascii")
    folder = control_folder(2)
    launches = [Launch([sys.executable, str(program), str(folder), str(rank)]) for rank in range(2)]
    made = Session("test", folder, 2, launches)
    try:
        made.ready(20)
        yield made
    finally:
        made.stop()
    assert not folder.exists()


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
