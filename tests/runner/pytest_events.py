"""A pytest plugin: one JSON line per test to the file named by RINGD_TEST_EVENTS, when the test has
ended."""

from __future__ import annotations

import json
import os

import pytest

_PATH = os.environ.get("RINGD_TEST_EVENTS")


class _Recorder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._phases: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases.append(report)
        if report.when == "teardown":
            self._write()
            self._phases = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._append(
                {"name": report.nodeid, "verdict": "FAILED", "seconds": 0, "log": str(report.longrepr)}
            )

    def _write(self) -> None:
        verdict = "PASSED"
        log = ""
        for phase in self._phases:
            if phase.failed:
                verdict = "FAILED"
                log += f"{phase.longreprtext}\n"
                log += "".join(f"---- {title} ----\n{text}\n" for title, text in phase.sections)
            elif phase.skipped and verdict == "PASSED":
                verdict = "SKIPPED"
                log = phase.longrepr[2] if isinstance(phase.longrepr, tuple) else phase.longreprtext
        seconds = sum(phase.duration for phase in self._phases)
        self._append({"name": self._phases[0].nodeid, "verdict": verdict, "seconds": seconds, "log": log})

    def _append(self, event: dict[str, object]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    if _PATH is not None:
        config.pluginmanager.register(_Recorder(_PATH), "ringd-test-events")
