"""The test programs that Bazel builds. One outcome for each program, with as many cases as its XML
tells."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tests.runner.conditions import Conditions
from tests.runner.report import Outcome, OutcomeSink, Verdict

HEARTBEAT_S = 20
POLL_S = 0.3
# Tags of targets that are left out, in general and by sanitizer.
NEVER = ("gpu", "manual")
UNDER_SANITIZER = {"asan": "noasan", "ubsan": "noubsan", "tsan": "notsan"}


def names(root: Path, sanitizer: str | None) -> list[str]:
    left_out = [*NEVER, UNDER_SANITIZER[sanitizer]] if sanitizer else list(NEVER)
    # A tag stands in the attribute's text as [a, gpu, b].
    unwanted = " ".join(f'except attr(tags, "[\\[ ]{tag}[,\\]]", //tests/...)' for tag in left_out)
    query = ["bazel", "query", "--noshow_progress", f"tests(//tests/...) {unwanted}"]
    result = subprocess.run(query, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"bazel query failed:\n{result.stderr}")
    return sorted(result.stdout.split())


def run(
    root: Path,
    selected: Sequence[str],
    sanitizer: str | None,
    report: OutcomeSink,
    conditions: Conditions | None = None,
) -> None:
    """Runs the selected programs; those that don't build count as failed. Without conditions: once,
    unless nothing has changed since they passed."""
    state = root / ".cache" / "tests"
    state.mkdir(parents=True, exist_ok=True)
    events = state / "bazel-events.json"
    events.unlink(missing_ok=True)
    targets = state / "bazel-targets.txt"
    targets.write_text("".join(f"{name}\n" for name in selected))
    log = state / "bazel.log"
    options = ["--keep_going", "--color=no", "--curses=no", f"--target_pattern_file={targets}"]
    if sanitizer:
        options.append(f"--config={sanitizer}")
    # Building first and testing on half of the processors keeps the clocks of tests honest:
    # compilers and other tests would make a process late that must answer within a second.
    cores = conditions.cores if conditions else os.sched_getaffinity(0)
    jobs = max(1, len(cores) // 2)
    test_options = ["--test_output=summary", f"--local_test_jobs={jobs}", f"--build_event_json_file={events}"]
    if conditions:
        test_options += ["--nocache_test_results", f"--runs_per_test={conditions.runs}"]
        if conditions.prefix:
            test_options.append(f"--run_under={shlex.join(conditions.prefix)}")
    with log.open("w") as log_file:
        for command in (["build", *options], ["test", *options, *test_options]):
            process = subprocess.Popen(
                ["bazel", *command],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
            )
            try:
                for outcome in _outcomes(process, events, log):
                    report.add(outcome)
            except BaseException:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                raise
    report.fail_missing(selected, "did not build or run:\n" + _errors(log))


def _outcomes(process: subprocess.Popen[bytes], events: Path, log: Path) -> Iterator[Outcome]:
    """The outcomes in order of completion, until Bazel ends."""
    reader = _EventReader(events)
    last_sign = time.monotonic()
    while True:
        ended = process.poll() is not None
        for event in reader.new_events():
            result = _test_result(event)
            if result is not None:
                last_sign = time.monotonic()
                yield result
        if ended:
            return
        if time.monotonic() - last_sign > HEARTBEAT_S:
            last_sign = time.monotonic()
            print(f"    ... {_last_line(log)[:120]}", flush=True)
        time.sleep(POLL_S)


@dataclass
class _EventReader:
    """Follows the file of events while Bazel writes it."""

    path: Path
    offset: int = 0

    def new_events(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self.offset += len(complete)
        return [json.loads(line) for line in complete.splitlines() if line.strip()]


def _test_result(event: dict[str, Any]) -> Outcome | None:
    identity = event.get("id", {}).get("testResult")
    if identity is None or "testResult" not in event:
        return None
    result = event["testResult"]
    outputs = {output["name"]: _path(output["uri"]) for output in result.get("testActionOutput", [])}
    passed = result.get("status") == "PASSED"
    cases = count_cases(outputs.get("test.xml"), passed)
    log = ""
    if not passed:
        # The first lines are Bazel's own.
        output = _read(outputs.get("test.log")).split("-" * 77 + "\n", 1)[-1]
        log = f"{result.get('status')}\n{output}"
    verdict = Verdict.PASSED if passed else Verdict.FAILED
    if passed and not cases.passed:
        verdict = Verdict.SKIPPED
        log = "every case"
    return Outcome(
        name=identity["label"],
        verdict=verdict,
        seconds=int(result.get("testAttemptDurationMillis", 0)) / 1000,
        passed_cases=cases.passed,
        failed_cases=cases.failed,
        log=log,
        cached=bool(result.get("cachedLocally") or result.get("executionInfo", {}).get("cachedRemotely")),
        skipped_cases=cases.skipped,
    )


@dataclass(frozen=True)
class Cases:
    passed: int
    failed: int
    skipped: tuple[str, ...] = ()  # "name: why"


def count_cases(xml: Path | None, passed: bool) -> Cases:
    """How many cases passed and failed, and which could not be tried; a program that failed without
    saying where counts as one failed case."""
    try:
        text = _read(xml)
        cases = list(ElementTree.fromstring(text).iter("testcase")) if text else []
    except ElementTree.ParseError:
        cases = []
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skipped = tuple(
        f"{case.get('name')}: {reason.get('message')}"
        for case in cases
        if (reason := case.find("skipped")) is not None
    )
    tried = len(cases) - len(skipped)
    if passed:
        return Cases(tried if cases else 1, 0, skipped)
    return Cases(tried - failed, max(failed, 1), skipped)


def _path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def _read(path: Path | None) -> str:
    if path is None or not path.exists():
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _last_line(log: Path) -> str:
    lines = _read(log).splitlines()
    return lines[-1] if lines else "starting Bazel"


# Lines of Bazel's that say nothing about why something failed.
NOISE = re.compile(
    r"^\[[\d,]+ / [\d,]+\]"
    r"|^(INFO|Loading|Analyzing|FAIL|TIMEOUT|FAILED|Executed|There were|Use --sandbox_debug)"
    r"|^//|/test\.log$|^\s*$"
)


def _errors(log: Path) -> str:
    """Bazel's output without its progress lines."""
    # Twice the same: the build's, and the test's.
    lines = dict.fromkeys(line for line in _read(log).splitlines() if not NOISE.search(line))
    return "\n".join(lines)
