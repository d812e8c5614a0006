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
# It judges steps by milliseconds.
ALONE = "tests/soak/soak_test.py"
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


def run(root: Path, selected: Sequence[str], report: OutcomeSink, prefix: Sequence[str] = ()) -> None:
    """Runs the selected tests once, by a command that begins with `prefix`."""
    state = root / ".cache" / "tests"
    state.mkdir(parents=True, exist_ok=True)
    events = state / "pytest-events.json"
    events.write_text("")
    log = state / "pytest.log"
    chosen = state / "pytest-arguments.txt"
    chosen.write_text("".join(f"{name}\n" for name in selected))
    options = ("--tb=short", "--continue-on-collection-errors", f"@{chosen}")
    command = [*prefix, sys.executable, *ARGUMENTS, *options]
    environment = _environment(root) | {"RINGD_TEST_EVENTS": str(events)}

    with log.open("w") as log_file:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            # A Ctrl-C reaches it through _end() alone: a second one would cut short how it ends its
            # ringds.
            process_group=0,
        )
        try:
            reason = _follow(process, events, report)
        finally:
            _end(process)
    tail = log.read_text(errors="replace").splitlines()[-80:]
    report.fail_missing(selected, "\n".join([reason, *tail]))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends pytest, if it has not ended, and what its fixtures have started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _follow(process: subprocess.Popen[bytes], events: Path, report: OutcomeSink) -> str:
    """Reports outcomes until pytest ends; what to say of those that never came."""
    heard = time.monotonic()
    with events.open(encoding="utf-8") as file:
        unfinished = ""
        while True:
            ended = process.poll() is not None
            for line in file:
                unfinished += line
                if not line.endswith("\n"):
                    continue
                event = json.loads(unfinished)
                unfinished = ""
                heard = time.monotonic()
                report.add(single(event["name"], Verdict[event["verdict"]], event["seconds"], event["log"]))
            if ended:
                return f"pytest ended with {process.returncode} before this test"
            if time.monotonic() - heard > SILENCE_TIMEOUT_S:
                return f"no test has ended for {SILENCE_TIMEOUT_S} s"
            time.sleep(POLL_S)


def _environment(root: Path) -> dict[str, str]:
    """As after `eval "$(deploy/env)"`."""
    folders = [str(root / "bin"), str(root / ".venv" / "bin"), os.environ.get("PATH", os.defpath)]
    path = os.pathsep.join(folders)
    return os.environ | {"PATH": path, "RINGD_PYTHON": str(root / ".venv" / "bin" / "python")}
