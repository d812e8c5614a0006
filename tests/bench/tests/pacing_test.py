"""Repetitions follow from the time of a call."""

from __future__ import annotations

from harness.pacing import MOST_CALLS, Pace, plan_batch, plan_rounds, worth_repeating

PACE = Pace(rounds=7, batch_seconds=0.25, row_seconds=30.0)


def test_short_calls_are_timed_in_groups() -> None:
    batch = plan_batch(0.25e-6, PACE)
    assert 0.001 <= batch.inner * 0.25e-6 < 0.0011
    assert batch.samples == 200
    assert plan_batch(0.0, PACE).inner == MOST_CALLS


def test_long_calls_are_timed_one_by_one_and_at_least_once() -> None:
    batch = plan_batch(2.1, PACE)
    assert (batch.inner, batch.samples, batch.warmup) == (1, 1, 0)


def test_calls_of_up_to_a_second_have_a_dropped_first_sample() -> None:
    batch = plan_batch(0.010, PACE)
    assert (batch.inner, batch.samples, batch.warmup) == (1, 25, 1)
    batch = plan_batch(0.845, PACE)
    assert (batch.inner, batch.samples, batch.warmup) == (1, 1, 1)


def test_rounds_fit_the_rows_time_but_there_is_always_one() -> None:
    assert plan_rounds([0.25] * 6, PACE) == 7
    assert plan_rounds([5.0, 5.0], PACE) == 3
    assert plan_rounds([100.0], PACE) == 1
    assert plan_rounds([], PACE) == 7


def test_ways_far_behind_the_best_are_not_repeated() -> None:
    assert worth_repeating({"a": 1.0, "b": 1.5, "c": 1.7}) == {"a", "b"}
    assert worth_repeating({}) == set()
