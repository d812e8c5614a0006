"""Counts the outcomes of tests that run again and again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from tests.runner.report import Outcome, Verdict, print_log, single

PROGRESS_S = 10
# Of one test; further failures are counted only.
LOGS_SHOWN = 3


class Tally:
    """Invariant: a run counts as passed only if its outcome arrived and said so."""

    def __init__(self, expected: Sequence[str], runs: int) -> None:
        self._runs = runs
        self._begun: Counter[str] = Counter(dict.fromkeys(expected, 0))
        self._ended: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._skipped: dict[str, str] = {}
        self._skipped_cases: dict[str, tuple[str, ...]] = {}
        self._slowest: dict[str, float] = {}
        self._next_progress = time.monotonic() + PROGRESS_S

    def begin(self, names: Sequence[str], runs: int) -> None:
        """Expects the outcomes of so many more runs of each."""
        for name in names:
            self._begun[name] += runs

    def add(self, outcome: Outcome) -> None:
        name = outcome.name
        self._ended[name] += 1
        self._slowest[name] = max(self._slowest.get(name, 0), outcome.seconds)
        if outcome.verdict is Verdict.SKIPPED:
            self._skipped[name] = outcome.log
        if outcome.skipped_cases:
            self._skipped_cases[name] = outcome.skipped_cases
        if outcome.verdict is Verdict.FAILED:
            self._failed[name] += 1
            print(f"FAIL  {name}  (run {self._ended[name]} of {self._runs}, {outcome.seconds:.1f} s)")
            if self._failed[name] <= LOGS_SHOWN:
                print_log(outcome.log)
        if self._ended[name] == self._runs:
            self._print_test(name)
        elif time.monotonic() > self._next_progress:
            self._print_progress()

    def fail_missing(self, names: Sequence[str], reason: str) -> None:
        """Counts those runs of `names` as failed that have begun and whose outcome never came."""
        for name in names:
            while self._ended[name] < self._begun[name]:
                self.add(single(name, Verdict.FAILED, 0, reason))
                reason = "as above"

    def finish(self, seconds: float, interrupted: bool = False) -> int:
        """Prints what failed how often, and the last line; the exit code."""
        if not interrupted:
            self._begun = Counter(dict.fromkeys(self._begun, self._runs))
            self.fail_missing(list(self._begun), "no outcome")
        print()
        for name, why in self._skipped.items():
            print(f"skipped: {name}: {why}")
        for name, cases in self._skipped_cases.items():
            for case in cases:
                print(f"skipped: {name}: {case}")
        for name, count in self._failed.most_common():
            print(f"failed {count} of {self._ended[name]} runs: {name}")
        of_all = f" of {len(self._begun) * self._runs}" if interrupted else ""
        print(f"{self._ended.total()}{of_all} runs of {len(self._begun)} tests in {seconds:.0f} s")
        failed = self._failed.total()
        skipped_runs = sum(self._ended[name] - self._failed[name] for name in self._skipped)
        print(f"{self._ended.total() - failed - skipped_runs} passed, {failed} failed", flush=True)
        return 1 if failed else 0

    def _print_test(self, name: str) -> None:
        verdict = Verdict.SKIPPED if name in self._skipped else Verdict.PASSED
        failed = self._failed[name]
        told = f"{failed} failed, " if failed else ""
        verdict = Verdict.FAILED if failed else verdict
        slowest = self._slowest[name]
        print(f"{verdict.value}  {name}  ({self._runs} runs, {told}slowest {slowest:.1f} s)", flush=True)

    def _print_progress(self) -> None:
        self._next_progress = time.monotonic() + PROGRESS_S
        of_all = len(self._begun) * self._runs
        print(f"    ... {self._ended.total()} of {of_all} runs, {self._failed.total()} failed", flush=True)
