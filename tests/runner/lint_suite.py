"""The steps of lint as tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lint.source_tree import SourceTree
from tests.lint.steps import STEPS
from tests.runner.report import OutcomeSink, Verdict, single

PREFIX = "lint/"
# Takes a quarter of an hour of two processors in a fresh clone, and needs nothing of the tests.
LONG = PREFIX + "clang-tidy"
# Beside processes of niceness 19 the kernel now and then lets one that has just woken wait for
# seconds: deaths of engines were told 1.7 to 3 s late, 1 of 10. With 10 none of 24 was.
NICENESS = 10


def names() -> list[str]:
    return [PREFIX + step for step in STEPS]


def run(root: Path, selected: Sequence[str], report: OutcomeSink) -> None:
    """Runs these steps, one after the other."""
    tree = SourceTree(root)
    for name in selected:
        begin = time.monotonic()
        try:
            complaints = STEPS[name.removeprefix(PREFIX)](tree)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            complaints = [f"{type(error).__name__}: {error}"]
        verdict = Verdict.FAILED if complaints else Verdict.PASSED
        report.add(single(name, verdict, time.monotonic() - begin, "\n".join(complaints)))


class Beside:
    """A step in processes of its own, which only take what the tests leave of the processors: most
    of the integration tests wait for something.

    Leaving the block ends it. Thread safety: one thread.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._name = name
        state = root / ".cache" / "tests"
        state.mkdir(parents=True, exist_ok=True)
        self._log = state / "lint-beside.log"
        self._begin = time.monotonic()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.lint", name.removeprefix(PREFIX)],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _yield_processors(self._process.pid)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def finish(self, report: OutcomeSink) -> None:
        """Waits until it is done, and reports it. It has its own limits."""
        code = self._process.wait()
        seconds = time.monotonic() - self._begin
        log = self._log.read_text(errors="replace") if code else ""
        report.add(single(self._name, Verdict.FAILED if code else Verdict.PASSED, seconds, log))


def _yield_processors(session: int) -> None:
    """Lets others go first: niceness counts within a session's group only, and the group's own
    counts among groups (sched(7), autogroup)."""
    # A user may not lower what tests/run has been started with.
    niceness = max(NICENESS, os.nice(0))
    os.setpriority(os.PRIO_PROCESS, session, niceness)
    group = Path(f"/proc/{session}/autogroup")
    try:
        group.write_text(str(niceness))
    except OSError:
        return  # this kernel has no such groups
