"""How often a work is repeated, so that a run stays within its time. Pure."""

from __future__ import annotations

import dataclasses
import math

from .work import Batch

# A timed sample shorter than this is several calls: the clock itself costs 25 ns.
SHORTEST_SAMPLE = 0.001
LONG_SAMPLE = 3.0
SETTLING_SECONDS = 12.0
# Where calls take longer, starting the contestants anew takes too long.
LONG_TO_START = 1.0
MOST_CALLS = 10_000
MOST_SAMPLES = 200


@dataclasses.dataclass(frozen=True)
class Pace:
    """The pace of a suite."""

    rounds: int
    batch_seconds: float  # how long one contestant runs before the next one has its turn
    row_seconds: float  # what a row may take after calibration
    starts: int = 1  # how often the contestants are started, with as many rounds each


def calibration() -> Batch:
    """The first batch of every way: it checks the sums and shows how long a call takes."""
    return Batch(inner=1, samples=2, warmup=0, verify=True)


def calibration_for_slow_work() -> Batch:
    """The same where a single call may take seconds."""
    return Batch(inner=1, samples=1, warmup=0, verify=True)


def settling(call_seconds: float) -> Batch:
    """Untimed calls of a list of tensors by every way that stays: what is measured is a training's
    steady state, and libraries learn sizes, buffers and plans in its first steps."""
    return Batch(
        inner=1, samples=max(4, min(10, round(SETTLING_SECONDS / max(call_seconds, 1e-8)))), warmup=0
    )


def plan_batch(call_seconds: float, pace: Pace) -> Batch:
    """The repetitions of one batch of a work whose calls take about so long."""
    call = max(call_seconds, 1e-8)
    inner = min(MOST_CALLS, max(1, math.ceil(SHORTEST_SAMPLE / call)))
    samples = max(1, min(MOST_SAMPLES, round(pace.batch_seconds / (inner * call))))
    # Whoever ran before has filled the caches, and TCP's windows have shrunk since: the first
    # sample is dropped, unless it is a long one.
    return Batch(inner=inner, samples=samples, warmup=1 if inner * call < LONG_SAMPLE else 0)


def plan_rounds(batch_seconds: list[float], pace: Pace) -> int:
    """How many rounds over all ways fit into the row's time; at least one."""
    one_round = sum(batch_seconds)
    if one_round <= 0:
        return pace.rounds
    return max(1, min(pace.rounds, int(pace.row_seconds / one_round)))


def starts_anew(number: int, rounds: int, call_seconds: list[float], pace: Pace) -> bool:
    """Whether all contestants are started anew before this round, the first of which is 0."""
    if number == 0 or max(call_seconds, default=0.0) >= LONG_TO_START:
        return False
    return number % math.ceil(rounds / pace.starts) == 0


def worth_repeating(call_seconds: dict[str, float], slower_than_best: float = 1.6) -> set[str]:
    """Of one contestant's ways those that may still turn out to be its best."""
    if not call_seconds:
        return set()
    best = min(call_seconds.values())
    return {way for way, seconds in call_seconds.items() if seconds <= slower_than_best * best}
