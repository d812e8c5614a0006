"""Repetitions follow from the time of a call."""

from __future__ import annotations

from harness.pacing import MOST_CALLS, Pace, plan_batch, plan_rounds, settling, starts_anew, worth_repeating

PACE = Pace(rounds=7, batch_seconds=0.25, row_seconds=30.0)


def test_short_calls_are_timed_in_groups() -> None:
    batch = plan_batch(0.25e-6, PACE)
    assert 0.001 <= batch.inner * 0.25e-6 < 0.0011
    assert batch.samples == 200
    assert plan_batch(0.0, PACE).inner == MOST_CALLS


def test_long_calls_are_timed_one_by_one_and_at_least_once() -> None:
    batch = plan_batch(7.1, PACE)
    assert (batch.inner, batch.samples, batch.warmup) == (1, 1, 0)


def test_calls_of_up_to_three_seconds_have_a_dropped_first_sample() -> None:
    batch = plan_batch(0.010, PACE)
    assert (batch.inner, batch.samples, batch.warmup) == (1, 25, 1)
    batch = plan_batch(2.1, PACE)
    assert (batch.inner, batch.samples, batch.warmup) == (1, 1, 1)


def test_rounds_fit_the_rows_time_but_there_is_always_one() -> None:
    assert plan_rounds([0.25] * 6, PACE) == 7
    assert plan_rounds([5.0, 5.0], PACE) == 3
    assert plan_rounds([100.0], PACE) == 1
    assert plan_rounds([], PACE) == 7


def test_starts_are_spread_over_the_rounds_unless_calls_are_long() -> None:
    pace = Pace(rounds=9, batch_seconds=1.0, row_seconds=90.0, starts=3)
    assert [n for n in range(9) if starts_anew(n, 9, [0.3], pace)] == [3, 6]
    assert [n for n in range(4) if starts_anew(n, 4, [0.3], pace)] == [2]
    assert not any(starts_anew(n, 9, [0.3, 1.2], pace) for n in range(9))
    assert not any(starts_anew(n, 7, [0.3], PACE) for n in range(7))


def test_lists_settle_for_some_calls_fewer_where_they_are_long() -> None:
    assert [settling(call).samples for call in (0.0, 0.05, 1.2, 2.2, 7.0)] == [10, 10, 10, 5, 4]


def test_ways_far_behind_the_best_are_not_repeated() -> None:
    assert worth_repeating({"a": 1.0, "b": 1.5, "c": 1.7}) == {"a", "b"}
    assert worth_repeating({}) == set()
