"""Whose processor time is counted: a session's, descendants that left it included, and the
machine's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.processor_time import Meter, machine_busy_seconds, processes_of

# Computes for as long as the argument says, in processor time, then says so and waits.
COMPUTE = """
import sys, time
end = time.process_time() + float(sys.argv[1])
while time.process_time() < end:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@contextmanager
def computing(seconds: float, session: bool = True) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", COMPUTE, str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=session
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_done(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"


def test_a_session_is_charged_with_its_own_time_and_not_with_others() -> None:
    with computing(0.3) as one:
        meter = Meter(one.pid)
        with computing(0.6) as other:
            wait_until_done(other)
            wait_until_done(one)
            spent = meter.spent()
    # What it computed before the meter was made is not counted.
    assert 0.1 < spent.processes < 0.45
    assert spent.machine > 0.8 * 0.6


def test_the_machine_is_busy_while_somebody_computes_and_never_more_than_all_processors() -> None:
    begun, busy = time.monotonic(), machine_busy_seconds()
    with computing(0.3, session=False) as process:
        wait_until_done(process)
    spent, elapsed = machine_busy_seconds() - busy, time.monotonic() - begun
    assert 0.25 < spent < 64 * elapsed


def test_a_descendant_that_left_the_session_counts() -> None:
    program = (
        "import subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], "
        "stdin=subprocess.PIPE, start_new_session=True); "
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        assert processes_of(leader.pid) == {leader.pid, child}
        assert leader.stdin is not None
        leader.stdin.close()
