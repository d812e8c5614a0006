"""How often a test failed must be told truly, also if some of its runs never ended."""

from __future__ import annotations

import pytest

from tests.runner.report import Outcome, Verdict, single
from tests.runner.tally import LOGS_SHOWN, Tally


def add(tally: Tally, name: str, verdict: Verdict, times: int = 1, log: str = "") -> None:
    for _ in range(times):
        tally.add(single(name, verdict, 0.1, log))


def test_runs_are_counted_and_success_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a", "b"], 3)
    tally.begin(["a", "b"], 3)
    add(tally, "a", Verdict.PASSED, 3)
    add(tally, "b", Verdict.PASSED, 3)

    assert tally.finish(1) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("pass  a  (3 runs") for line in lines)
    assert lines[-1] == "6 passed, 0 failed"


def test_each_failing_test_is_told_with_how_many_runs_failed(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a", "b", "c"], 10)
    tally.begin(["a", "b", "c"], 10)
    add(tally, "a", Verdict.PASSED, 9)
    add(tally, "a", Verdict.FAILED, 1, "too late")
    add(tally, "b", Verdict.FAILED, 10, "wrong sum")
    add(tally, "c", Verdict.PASSED, 10)

    assert tally.finish(1) == 1
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines.index("failed 10 of 10 runs: b") < lines.index("failed 1 of 10 runs: a")
    assert "    too late" in lines
    assert lines.count("    wrong sum") == LOGS_SHOWN
    assert lines[-1] == "19 passed, 11 failed"


def test_a_run_that_never_reported_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a"], 3)
    tally.begin(["a"], 3)
    add(tally, "a", Verdict.PASSED, 2)

    assert tally.finish(1) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 1 failed"


def test_missing_runs_of_a_round_are_told_when_the_round_ends(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a"], 3)
    tally.begin(["a"], 1)
    tally.fail_missing(["a"], "pytest ended before this test")
    tally.begin(["a"], 1)
    add(tally, "a", Verdict.PASSED)
    tally.fail_missing(["a"], "pytest ended before this test")
    tally.begin(["a"], 1)
    add(tally, "a", Verdict.PASSED)

    assert tally.finish(1) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "failed 1 of 3 runs: a" in lines
    assert "    pytest ended before this test" in lines
    assert lines[-1] == "2 passed, 1 failed"


def test_a_test_that_never_began_has_not_failed_if_the_loop_was_interrupted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally(["a", "b"], 3)
    tally.begin(["a"], 3)
    add(tally, "a", Verdict.PASSED, 2)

    assert tally.finish(1, interrupted=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("2 of 6 runs of 2 tests")
    assert lines[-1] == "2 passed, 0 failed"


def test_a_skipped_test_is_named_and_counts_as_neither(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a"], 2)
    tally.begin(["a"], 2)
    add(tally, "a", Verdict.SKIPPED, 2, "needs root")

    assert tally.finish(1) == 0
    printed = capsys.readouterr().out
    assert "skipped: a: needs root" in printed
    assert printed.splitlines()[-1] == "0 passed, 0 failed"


def test_skipped_cases_of_a_program_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a"], 1)
    tally.begin(["a"], 1)
    tally.add(Outcome("a", Verdict.PASSED, 0.1, 3, 0, skipped_cases=("other users: needs root",)))

    assert tally.finish(1) == 0
    printed = capsys.readouterr().out
    assert "skipped: a: other users: needs root" in printed
    assert printed.splitlines()[-1] == "1 passed, 0 failed"


def test_a_test_that_is_not_begun_at_all_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(["a"], 2)

    assert tally.finish(1) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 2 failed"
