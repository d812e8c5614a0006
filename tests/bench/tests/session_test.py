"""The side channel against a driver of a few lines: answers, failures and hangs."""

from __future__ import annotations

import os
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


def pids_of(tmp_path: Path) -> list[int]:
    return [int(pid) for pid in (tmp_path / "pids").read_text(encoding="ascii").split()]


def state_of(pid: int) -> str:
    """The letter of proc_pid_stat(5); of one that is gone X, which stands there for dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def come_to(states: str, tmp_path: Path, seconds: float = 20) -> bool:
    """Whether all processes come to one of `states` in time: a signal takes a moment to arrive."""
    deadline = time.monotonic() + seconds
    while not all(state_of(pid) in states for pid in pids_of(tmp_path)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_batch_is_answered_with_its_samples(session: Session) -> None:
    assert session.version == "test 1"
    assert session.run(TENSOR, "f32", Way("x"), BATCH, 20).seconds == [0.5] * 4


def test_what_a_peer_cannot_do_is_no_failure(session: Session) -> None:
    with pytest.raises(UnsupportedError, match="no f16"):
        session.run(TENSOR, "f16", Way("x"), BATCH, 20)
    assert session.run(TENSOR, "f32", Way("x"), BATCH, 20).seconds == [0.5] * 4


def test_a_wrong_sum_is_a_failure(session: Session) -> None:
    with pytest.raises(PeerError, match="wrong sum"):
        session.run(TENSOR, "f32", Way("x", "async"), BATCH, 20)


def test_a_process_that_dies_is_reported_with_what_it_printed(session: Session) -> None:
    with pytest.raises(PeerError, match=r"ended with 3.*about to die"):
        session.run(TENSOR, "f32", Way("x", "bucket"), BATCH, 20)


def test_the_processes_yield_to_each_other_alone(session: Session, tmp_path: Path) -> None:
    # That is, they are of one Unix session, and the harness of another.
    del session
    sessions = {os.getsid(pid) for pid in pids_of(tmp_path)}
    assert len(sessions) == 1
    assert os.getsid(0) not in sessions


def test_a_program_that_is_not_there_is_named() -> None:
    folder = control_folder(1)
    session = Session("test", folder, 1, [Launch(["/nowhere/driver"])])
    try:
        with pytest.raises(PeerError, match=r"ended with 127.*/nowhere/driver"):
            session.ready(20)
    finally:
        session.stop()


def test_who_leaves_processes_behind_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.session.END_PATIENCE_S", 0.5)
    folder = control_folder(1)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pids; while :; do sleep 1; done"
    session = Session("test", folder, 1, [Launch(["/bin/sh", "-c", script])])
    try:
        deadline = time.monotonic() + 20
        while not ((tmp_path / "pids").exists() and pids_of(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        session.stop()
    # Init waits for it, some day: until then it is a zombie.
    assert come_to("ZX", tmp_path)


def test_a_hanging_driver_is_given_up_and_ended(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.session.END_PATIENCE_S", 0.5)
    started = time.monotonic()
    with pytest.raises(PeerError, match="no answer in time"):
        session.run(TENSOR, "f32", Way("x", "null"), BATCH, 0.5)
    session.stop()
    assert time.monotonic() - started < 15


def test_who_never_idles_is_stopped_while_it_has_no_work(tmp_path: Path) -> None:
    session = begin(tmp_path, freeze=True)
    assert come_to("T", tmp_path)
    assert session.run(TENSOR, "f32", Way("x"), BATCH, 20).seconds == [0.5] * 4
    assert come_to("T", tmp_path)
    started = time.monotonic()
    session.stop()
    assert time.monotonic() - started < 5
    assert not session.folder.exists()


def test_others_are_not_stopped(session: Session, tmp_path: Path) -> None:
    assert not come_to("T", tmp_path, seconds=1)
