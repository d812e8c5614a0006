"""What the other ranks hear of a process that ends by an exception."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ringd
from ringd import exits


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("has no words")


class Interrupted(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Place:
    """One that is only told of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def abandon(self, why: str) -> None:
        self.told.append(why)

    def close(self) -> None:
        self.told.append("closed")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """The only one that is watched."""
    place = Place()
    monkeypatch.setattr(exits, "_contexts", {place})
    monkeypatch.setattr(exits, "_previous_hooks", [lambda *what: None])
    monkeypatch.setattr(exits, "_watching_process", os.getpid())
    return place


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such file"), "ended by an uncaught exception: ValueError: no such file"),
        (ValueError(), "ended by an uncaught exception: ValueError"),
        (KeyError("x"), "ended by an uncaught exception: KeyError: 'x'"),
        (ringd.JobFailedError("gone"), "ended by an uncaught exception: ringd.errors.JobFailedError: gone"),
        (KeyboardInterrupt(), "was interrupted (KeyboardInterrupt)"),
    ],
)
def test_an_exception_has_its_name_and_words(error: BaseException, words: str) -> None:
    assert exits.why_ended(type(error), error) == words


@pytest.mark.parametrize("error", [Unspeakable(), Interrupted()])
def test_an_exception_without_words_has_its_name(error: Exception) -> None:
    name = f"{__name__}.{type(error).__name__}"
    assert exits.why_ended(type(error), error) == f"ended by an uncaught exception: {name}"


def test_any_text_can_be_told() -> None:
    assert exits.tellable("a\0b\ud800ü") == "a?b?ü"


def test_the_hook_tells_and_the_end_of_the_process_does_if_the_hook_was_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ValueError("no such file")
    monkeypatch.setattr(exits, "_goes_on", lambda: False)
    exits._on_uncaught(ValueError, error, None)
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    exits._at_exit()
    monkeypatch.delattr(sys, "last_value")
    exits._at_exit()
    words = "ended by an uncaught exception: ValueError: no such file"
    assert place.told == [words, words, "closed"]


_REPORTING = """
import ctypes, sys, threading
from ringd import exits


class Place:
    def abandon(self, why): print("abandoned")
    def close(self): print("closed")


def fail():
    raise ValueError("handled")


def report():
    try:
        fail()
    except ValueError:
        sys.excepthook(*sys.exc_info())


def print_by_c():
    # As an extension does by PyErr_Print: numpy, where it can't be imported.
    ctypes.pythonapi.PyRun_SimpleString(b"raise ValueError('handled in C')")


place = Place()
exits.watch(place)
"""


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("report(); print('goes on')", ["goes on", "closed"]),
        ("thread = threading.Thread(target=report); thread.start(); thread.join()", ["closed"]),
        ("print_by_c(); print('goes on')", ["goes on", "closed"]),
        ("print_by_c(); fail()", ["abandoned", "abandoned"]),
        ("sys.last_value = ValueError(); fail()", ["abandoned", "abandoned"]),
        ("fail()", ["abandoned", "abandoned"]),
        ("ours = sys.excepthook; sys.excepthook = lambda *what: ours(*what); fail()", ["abandoned"] * 2),
    ],
    ids=[
        "handled",
        "thread",
        "by C",
        "by C, then uncaught",
        "set, then uncaught",
        "uncaught",
        "through-another-hook",
    ],
)
@pytest.mark.parametrize("how", ["file", "module"])
def test_an_exception_that_is_only_reported_ends_nothing(
    tmp_path: Path, how: str, rest: str, told: list[str]
) -> None:
    (tmp_path / "reporting.py").write_text(_REPORTING + rest)
    start = ["reporting.py"] if how == "file" else ["-m", "reporting"]
    ended = subprocess.run(
        [sys.executable, *start], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.splitlines() == told, ended.stderr


_CHILD = """
import multiprocessing, sys, threading, time
from ringd import exits


class Place:
    def abandon(self, why): print(why, flush=True)
    def close(self): print("closed", flush=True)


def rank(how):
    global place
    place = Place()
    exits.watch(place)
    if how == "raises":
        raise ValueError("no such file")
    if how == "exits":
        sys.exit(3)
    if how == "is caught":  # as by torch.multiprocessing.spawn
        try:
            raise ValueError("no such file")
        except Exception:
            sys.exit(1)
    if how == "is caught, and all is well":
        try:
            raise ValueError("no such file")
        except Exception:
            sys.exit(0)
    if how == "leaves a thread":
        threading.Thread(target=lambda: (time.sleep(0.5), print("thread", flush=True))).start()


if __name__ == "__main__":
    # One that has gone before is not the child's.
    former = Place()
    exits.watch(former)
    del former
    child = multiprocessing.get_context(sys.argv[1]).Process(target=rank, args=(sys.argv[2],))
    child.start()
    child.join()
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("returns", "closed"),
        ("exits", "closed"),
        ("is caught", "ended by an uncaught exception: ValueError: no such file"),
        ("is caught, and all is well", "closed"),
        ("leaves a thread", "thread"),
        ("raises", "ended by an uncaught exception: ValueError: no such file"),
    ],
)
@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_a_rank_that_multiprocessing_has_started_ends_like_any_other(
    tmp_path: Path, start: str, how: str, told: str
) -> None:
    (tmp_path / "child.py").write_text(_CHILD)
    ended = subprocess.run(
        [sys.executable, "child.py", start, how],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # A child that ends by itself is told again, which the place takes for nothing.
    assert ended.stdout.splitlines()[:1] == [told], ended.stderr


_BUSY_AT_THE_END = """
import threading, time
import ringd

context = ringd.Context()
(number,) = context.register([ringd.TensorSpec("t", shape=(16,))])
address = context.arena_alloc(64)


def use() -> None:
    while True:
        context.wait(context.submit(number, address, address))


for _ in range(4):
    threading.Thread(target=use, daemon=True).start()
time.sleep(0.05)
"""


def test_a_program_ends_well_though_its_daemon_threads_are_in_calls() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGD_")}
    for _ in range(10):
        ended = subprocess.run(
            [sys.executable, "-c", _BUSY_AT_THE_END],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
