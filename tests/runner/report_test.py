"""The summary must count what happened, and never take silence for success."""

from __future__ import annotations

import pytest

from tests.runner.report import Outcome, Report, Verdict, single


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_cases_are_counted_and_success_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a", "b"])
    report.add(single("a", Verdict.PASSED, 0.1))
    report.add(Outcome("b", Verdict.PASSED, 0.1, passed_cases=7, failed_cases=0))

    assert report.finish(1) == 0
    assert last_line(capsys) == "8 passed, 0 failed"


def test_a_failure_exits_with_1_and_shows_the_end_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a"])
    log = "\n".join(f"line {number}" for number in range(1000))
    report.add(Outcome("a", Verdict.FAILED, 0.1, passed_cases=2, failed_cases=1, log=log))

    assert report.finish(1) == 1
    printed = capsys.readouterr().out
    assert "line 999" in printed
    assert "line 0\n" not in printed
    assert printed.splitlines()[-1] == "2 passed, 1 failed"


def test_a_test_that_never_reported_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a", "b"])
    report.add(single("a", Verdict.PASSED, 0.1))

    assert report.finish(1) == 1
    assert last_line(capsys) == "1 passed, 1 failed"


def test_a_skipped_test_is_named_and_counts_as_neither(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a"])
    report.add(single("a", Verdict.SKIPPED, 0, "needs root"))

    assert report.finish(1) == 0
    printed = capsys.readouterr().out
    assert "skipped: a: needs root" in printed
    assert printed.splitlines()[-1] == "0 passed, 0 failed"
