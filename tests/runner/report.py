"""Collects outcomes, shows each as it comes, and ends with the line that everything counts on."""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

LOG_LINES_SHOWN = 150
# Once more at the end, where someone who sees the end of the output alone looks.
LOG_LINES_AT_THE_END = 40
SLOWEST = 12  # so many are told at the end
# More than that have a cause of their own.
AGAIN_AT_MOST = 6


class Verdict(enum.Enum):
    PASSED = "pass"
    FAILED = "FAIL"
    SKIPPED = "skip"


@dataclass(frozen=True)
class Outcome:
    """What became of one test: a lint step, a C++ test program or a Python test."""

    name: str
    verdict: Verdict
    seconds: float
    # How many cases it stands for: a C++ program holds several.
    passed_cases: int
    failed_cases: int
    # Why it failed or was skipped.
    log: str = ""
    cached: bool = False
    # Those of its cases that could not be tried here, each with the reason.
    skipped_cases: tuple[str, ...] = ()


def single(name: str, verdict: Verdict, seconds: float, log: str = "") -> Outcome:
    """The outcome of a test that is one case."""
    return Outcome(
        name, verdict, seconds, int(verdict is Verdict.PASSED), int(verdict is Verdict.FAILED), log
    )


class OutcomeSink(Protocol):
    """Where a suite hands its outcomes."""

    def add(self, outcome: Outcome) -> None:
        """Takes an outcome as soon as it is known."""

    def fail_missing(self, names: Sequence[str], reason: str) -> None:
        """Counts those of `names` as failed whose outcome never came."""


def print_log(log: str, most: int = LOG_LINES_SHOWN, stream: TextIO | None = None) -> None:
    """The end of a test's log, indented; on standard output, or on `stream`."""
    lines = log.rstrip().splitlines()
    if len(lines) > most:
        print(f"    ... {len(lines) - most} lines before", file=stream)
    for line in lines[-most:]:
        print(f"    {line}", file=stream)
    (stream or sys.stdout).flush()


class Report:
    """Invariant: a test counts as passed only if its outcome arrived and said so."""

    def __init__(self, expected: Sequence[str]) -> None:
        self._waiting = dict.fromkeys(expected)
        self._total = len(self._waiting)
        self._outcomes: list[Outcome] = []
        self._unsteady: list[Outcome] = []

    def begin_again(self, candidates: Sequence[str]) -> list[str]:
        """Those of them that have failed, if they are few enough to be run once more: their next
        outcome counts, and what they failed with is told at the end."""
        failures = [
            outcome
            for outcome in self._outcomes
            if outcome.verdict is Verdict.FAILED and outcome.name in candidates
        ]
        if len(failures) > AGAIN_AT_MOST:
            return []
        for outcome in failures:
            self._outcomes.remove(outcome)
            self._waiting[outcome.name] = None
        self._unsteady += failures
        return [outcome.name for outcome in failures]

    def add(self, outcome: Outcome) -> None:
        if outcome.name not in self._waiting:
            self._total += 1
        self._waiting.pop(outcome.name, None)
        self._outcomes.append(outcome)
        width = len(str(self._total))
        detail = "cached" if outcome.cached else f"{outcome.seconds:.1f} s"
        cases = outcome.passed_cases + outcome.failed_cases
        if cases > 1:
            detail += f", {cases} cases"
        print(
            f"[{len(self._outcomes):{width}}/{self._total}] {outcome.verdict.value}  {outcome.name}"
            f"  ({detail})",
            flush=True,
        )
        if outcome.verdict is not Verdict.PASSED and outcome.log:
            print_log(outcome.log)

    def fail_missing(self, names: Sequence[str], reason: str) -> None:
        """Counts those of `names` as failed whose outcome never came."""
        for name in names:
            if name in self._waiting:
                self.add(single(name, Verdict.FAILED, 0, reason))
                reason = "as above"

    def finish(self, seconds: float, interrupted: bool = False) -> int:
        """Prints the summary and the last line; the exit code. Interrupted: those whose outcome has
        not come count as neither."""
        if interrupted:
            # Those that were to be run once more have failed until then.
            self._outcomes += [outcome for outcome in self._unsteady if outcome.name in self._waiting]
        else:
            self.fail_missing(list(self._waiting), "no outcome")
        failures = [outcome for outcome in self._outcomes if outcome.verdict is Verdict.FAILED]
        skips = [outcome for outcome in self._outcomes if outcome.verdict is Verdict.SKIPPED]
        print()
        for outcome in skips:
            print(f"skipped: {outcome.name}: {outcome.log}")
        for outcome in self._outcomes:
            for case in outcome.skipped_cases:
                print(f"skipped: {outcome.name}: {case}")
        failing = {outcome.name for outcome in failures}
        for outcome in self._unsteady:
            if outcome.name not in failing:
                print(f"unsteady: {outcome.name}: it passed when run once more; before:")
                print_log(outcome.log, LOG_LINES_AT_THE_END)
        for outcome in failures:
            print(f"failed: {outcome.name}")
            print_log(outcome.log, LOG_LINES_AT_THE_END)
        slowest = sorted(self._outcomes, key=lambda outcome: -outcome.seconds)[:SLOWEST]
        told = [f"{outcome.name} {outcome.seconds:.0f} s" for outcome in slowest if outcome.seconds >= 1]
        if told:
            print(f"slowest: {', '.join(told)}")
        of_all = f"interrupted after {len(self._outcomes)} of " if interrupted else ""
        print(f"{of_all}{self._total} tests in {seconds:.0f} s")
        passed = sum(outcome.passed_cases for outcome in self._outcomes)
        failed = sum(outcome.failed_cases for outcome in self._outcomes)
        print(f"{passed} passed, {failed} failed", flush=True)
        return 1 if failed or failures else 0
