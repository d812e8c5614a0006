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


def test_what_failed_is_run_once_more_and_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a", "b", "c"])
    report.add(single("a", Verdict.FAILED, 0.1, "cause of a"))
    report.add(single("b", Verdict.PASSED, 0.1))
    report.add(single("c", Verdict.FAILED, 0.1, "cause of c"))

    assert report.begin_again(["a", "b"]) == ["a"]
    report.add(single("a", Verdict.PASSED, 0.1))
    capsys.readouterr()
    assert report.finish(1) == 1
    printed = capsys.readouterr().out
    assert "unsteady: a: it passed when run once more; before:\n    cause of a\n" in printed
    assert "failed: c\n    cause of c\n" in printed
    assert printed.splitlines()[-1] == "2 passed, 1 failed"


def test_what_fails_twice_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a"])
    report.add(single("a", Verdict.FAILED, 0.1, "first"))
    report.begin_again(["a"])
    report.add(single("a", Verdict.FAILED, 0.1, "second"))

    assert report.finish(1) == 1
    printed = capsys.readouterr().out
    assert "unsteady" not in printed
    assert printed.splitlines()[-1] == "0 passed, 1 failed"


def test_what_is_to_be_run_once_more_and_never_reports_has_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(["a"])
    report.add(single("a", Verdict.FAILED, 0.1))
    report.begin_again(["a"])

    assert report.finish(1) == 1
    assert last_line(capsys) == "0 passed, 1 failed"


def test_many_failures_are_not_run_again() -> None:
    names = [str(number) for number in range(7)]
    report = Report(names)
    for name in names:
        report.add(single(name, Verdict.FAILED, 0.1))

    assert report.begin_again(names) == []


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


def test_the_slowest_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a", "b", "c"])
    report.add(single("a", Verdict.PASSED, 0.1))
    report.add(single("b", Verdict.PASSED, 3))
    report.add(single("c", Verdict.PASSED, 70))

    report.finish(80)

    assert "slowest: c 70 s, b 3 s\n" in capsys.readouterr().out


def test_who_interrupts_hears_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a", "b"])
    report.add(single("a", Verdict.PASSED, 0.1))

    assert report.finish(1, interrupted=True) == 0
    printed = capsys.readouterr().out
    assert "interrupted after 1 of 2 tests" in printed
    assert printed.splitlines()[-1] == "1 passed, 0 failed"


def test_cases_that_could_not_be_tried_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["a"])
    report.add(Outcome("a", Verdict.PASSED, 0.1, 3, 0, skipped_cases=("of another user: needs root",)))

    assert report.finish(1) == 0
    assert "skipped: a: of another user: needs root\n" in capsys.readouterr().out


def test_what_was_to_be_run_once_more_has_failed_if_that_was_interrupted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(["a", "b"])
    report.add(single("a", Verdict.FAILED, 0.1, "cause of a"))
    report.add(single("b", Verdict.PASSED, 0.1))
    report.begin_again(["a"])

    assert report.finish(1, interrupted=True) == 1
    printed = capsys.readouterr().out
    assert "unsteady" not in printed
    assert "failed: a\n    cause of a\n" in printed
    assert printed.splitlines()[-1] == "1 passed, 1 failed"
