"""How a step of lint runs beside the tests."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.runner import lint_suite
from tests.runner.report import Outcome, Verdict


class Sink:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def fail_missing(self, names: object, reason: str) -> None:
        raise AssertionError


def tree(folder: Path, program: str) -> Path:
    """A tree whose lint is this program."""
    (folder / "tests" / "lint").mkdir(parents=True)
    (folder / "tests" / "__init__.py").touch()
    (folder / "tests" / "lint" / "__init__.py").touch()
    (folder / "tests" / "lint" / "__main__.py").write_text(program)
    return folder


@pytest.mark.parametrize(
    ("program", "verdict", "log"),
    [
        ("print('all is well')", Verdict.PASSED, ""),
        ("import sys\nprint('a.cc: warning: no')\nsys.exit(1)", Verdict.FAILED, "a.cc: warning: no\n"),
    ],
    ids=["clean", "complains"],
)
def test_its_exit_code_is_the_verdict(tmp_path: Path, program: str, verdict: Verdict, log: str) -> None:
    sink = Sink()
    with lint_suite.Beside(tree(tmp_path, program), lint_suite.LONG) as step:
        step.finish(sink)
    (outcome,) = sink.outcomes
    assert (outcome.name, outcome.verdict, outcome.log) == (lint_suite.LONG, verdict, log)


def test_it_lets_the_tests_go_first(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "for _ in range(1000):\n"
        "    if os.nice(0) == 10:\n"
        "        break\n"
        "    time.sleep(0.01)\n"
        "print(os.nice(0), os.getsid(0) == os.getpid())\n"
        "sys.exit(1)"
    )
    sink = Sink()
    with lint_suite.Beside(tree(tmp_path, program), lint_suite.LONG) as step:
        step.finish(sink)
    assert sink.outcomes[0].log == "10 True\n"


def is_alive(pid: int) -> bool:
    """Who has been killed may not have been reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_leaving_the_block_ends_it_and_what_it_has_started(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('child', 'w').write(str(child.pid))\n"
        "os.rename('child', 'pid')\n"
        "child.wait()\n"
    )
    pid = tmp_path / "pid"
    with lint_suite.Beside(tree(tmp_path, program), lint_suite.LONG):
        while not pid.exists():
            time.sleep(0.01)
    deadline = time.monotonic() + 10
    while is_alive(int(pid.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)
