"""The Python tests: unit tests of the client, of the tools under tests/, and the integration
tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.runner.report import OutcomeSink, Verdict, single

POLL_S = 0.3
# Without an outcome. Each test has its own limit, in pyproject.toml or at itself.
SILENCE_TIMEOUT_S = 25 * 60
# For what has been interrupted to end what it has started.
END_TIMEOUT_S = 20
# They judge steps by milliseconds, or what comes over a line.
ALONE = (
    "tests/soak/soak_test.py",
    "tests/integration/fair_shares_test.py",
    "tests/integration/changing_line_test.py",
)
# They take half of the time and mostly wait, so they run beside the rest, failure tests included.
INTEGRATION = "tests/integration/"
FAILURES = "tests/integration/failures/"
ARGUMENTS = ("-m", "pytest", "-m", "not gpu", "-p", "tests.runner.pytest_events")


def names(root: Path) -> list[str]:
    """Every test's node id. A file that can't be collected stands for itself, and fails when
    run."""
    command = [
        sys.executable,
        *ARGUMENTS,
        "--collect-only",
        "-q",
        "--continue-on-collection-errors",
        "tests",
    ]
    result = subprocess.run(
        command,
        cwd=root,
        env=_environment(root),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = result.stdout.splitlines()
    tests = [line for line in lines if "::" in line and not line.startswith(("ERROR ", " ", "E "))]
    broken = [line.split(" ")[1] for line in lines if line.startswith("ERROR ")]
    if result.returncode not in (0, 5) and not broken:
        raise RuntimeError(f"pytest could not collect the tests:\n{result.stdout}{result.stderr}")
    return tests + broken


def wants_to_be_alone(name: str) -> bool:
    """Whether nothing else of ours may take processors meanwhile."""
    return name.startswith(ALONE)


def lanes(selected: Sequence[str]) -> list[list[str]]:
    """What may run side by side, each in the order of `selected`."""
    working = [name for name in selected if name.startswith(INTEGRATION) and not name.startswith(FAILURES)]
    rest = [name for name in selected if name not in working]
    return [lane for lane in (working, rest) if lane]


def run(
    root: Path, selected: Sequence[Sequence[str]], report: OutcomeSink, prefix: Sequence[str] = ()
) -> None:
    """Runs the tests of each lane once, the lanes side by side, by commands that begin with
    `prefix`."""
    state = root / ".cache" / "tests"
    state.mkdir(parents=True, exist_ok=True)
    started: list[_Lane] = []
    try:
        for names in selected:
            started.append(_Lane(root, state / f"pytest-{len(started)}", names, prefix))
        running = started
        while running:
            time.sleep(POLL_S)
            running = [lane for lane in running if lane.goes_on(report)]
    finally:
        for lane in started:
            lane.interrupt()
        for lane in started:
            lane.end()
    for lane in started:
        lane.fail_missing(report)


class _Lane:
    """A pytest with some of the tests. Thread safety: one thread."""

    def __init__(self, root: Path, files: Path, names: Sequence[str], prefix: Sequence[str]) -> None:
        """`files`: the beginning of its files' names."""
        self._names = names
        self._log = Path(f"{files}.log")
        events = Path(f"{files}-events.json")
        events.write_text("")
        chosen = Path(f"{files}-arguments.txt")
        chosen.write_text("".join(f"{name}\n" for name in names))
        options = ("--tb=short", "--continue-on-collection-errors", f"@{chosen}")
        with self._log.open("w") as log_file:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, *ARGUMENTS, *options],
                cwd=root,
                env=_environment(root) | {"RINGD_TEST_EVENTS": str(events)},
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                # A Ctrl-C reaches it through interrupt() alone: a second one would cut short how it
                # ends its ringds.
                process_group=0,
            )
        self._events = events.open(encoding="utf-8")
        self._unfinished = ""
        self._heard = time.monotonic()
        self._reason = ""

    def goes_on(self, report: OutcomeSink) -> bool:
        """Reports what has come; whether more can come."""
        ended = self._process.poll() is not None
        for line in self._events:
            self._unfinished += line
            if not line.endswith("\n"):
                continue
            event = json.loads(self._unfinished)
            self._unfinished = ""
            self._heard = time.monotonic()
            report.add(single(event["name"], Verdict[event["verdict"]], event["seconds"], event["log"]))
        if ended:
            self._reason = f"pytest ended with {self._process.returncode} before this test"
        elif time.monotonic() - self._heard > SILENCE_TIMEOUT_S:
            self._reason = f"no test has ended for {SILENCE_TIMEOUT_S} s"
        return not self._reason

    def interrupt(self) -> None:
        """Has pytest end, if it has not ended, and what its fixtures have started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """After interrupt(): waits, and kills it if it takes too long."""
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._events.close()

    def fail_missing(self, report: OutcomeSink) -> None:
        """After its end: counts those as failed whose outcome never came."""
        tail = self._log.read_text(errors="replace").splitlines()[-80:]
        report.fail_missing(self._names, "\n".join([self._reason, *tail]))


def _environment(root: Path) -> dict[str, str]:
    """As after `eval "$(deploy/env)"`."""
    folders = [str(root / "bin"), str(root / ".venv" / "bin"), os.environ.get("PATH", os.defpath)]
    path = os.pathsep.join(folders)
    return os.environ | {"PATH": path, "RINGD_PYTHON": str(root / ".venv" / "bin" / "python")}
