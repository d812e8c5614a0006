"""The processes that keep processors busy must never outlive what started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runner.conditions import Conditions

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30

# Starts them, tells their pids, and waits to be ended. Hears Ctrl-C also in a shell's background.
STARTER = """
import signal, sys, time
from tests.runner.conditions import Conditions
signal.signal(signal.SIGINT, signal.default_int_handler)
with Conditions(busy=True).beside() as pids:
    print(*pids, flush=True)
    time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_by_default_nothing_is_different() -> None:
    conditions = Conditions()
    assert conditions.prefix == []
    assert set(conditions.cores) == os.sched_getaffinity(0)
    with conditions.beside() as pids:
        assert pids == []


def test_a_command_on_one_core_may_use_no_other() -> None:
    conditions = Conditions(one_core=True)
    program = "import os; print(*os.sched_getaffinity(0))"
    command = [*conditions.prefix, sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    assert [int(core) for core in output.split()] == conditions.cores
    assert len(conditions.cores) == 1


@pytest.mark.parametrize("one_core", [False, True], ids=["all-cores", "one-core"])
def test_each_core_has_a_busy_process_until_the_block_is_left(one_core: bool) -> None:
    conditions = Conditions(one_core=one_core, busy=True)
    with conditions.beside() as pids:
        assert len(pids) == len(conditions.cores)
        for pid, core in zip(pids, conditions.cores, strict=True):
            assert wait_until(lambda pid=pid: processor_seconds(pid) > 0.1)  # type: ignore[misc]
            assert os.sched_getaffinity(pid) == {core}
    assert not any(is_running(pid) for pid in pids)


def test_they_end_with_the_block_also_when_it_is_left_by_an_error() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with Conditions(busy=True).beside() as started:
            pids.extend(started)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert pids
    assert not any(is_running(pid) for pid in pids)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_they_end_with_whatever_started_them(how: signal.Signals) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    assert len(pids) == len(os.sched_getaffinity(0))
    starter.send_signal(how)
    starter.wait(PATIENCE_S)
    starter.stdout.close()
    assert wait_until(lambda: not any(is_running(pid) for pid in pids))
