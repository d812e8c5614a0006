"""Every clause of a goal is judged by what one run measured, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from harness.goals import (
    Ahead,
    AtMost,
    Beyond,
    ElementRate,
    LineShare,
    Outcome,
    ProcessorTimeAtMost,
    Slowdown,
    all_hold,
)

MPIS = ("openmpi", "mpich", "intelmpi")
ALL_MPIS = {"openmpi": 20e-3, "mpich": 30e-3, "intelmpi": 12e-3}


def outcome(
    times: Mapping[str, float],
    states: Mapping[str, Mapping[str, float]] | None = None,
    unable: frozenset[str] = frozenset(),
    reference_elements: Mapping[str, int] | None = None,
    processor: Mapping[str, float] | None = None,
) -> Outcome:
    return Outcome(
        times, states or {"near": times}, 5e-3, 1000, reference_elements or {}, unable, processor or {}
    )


def test_ringd_is_compared_with_the_best_of_those_that_the_clause_names() -> None:
    clause = Ahead("1.3 times the best MPI", 1.3, MPIS)
    found = clause.judge(outcome({"ringd": 8e-3, "torch": 1e-3, **ALL_MPIS}))
    assert found.value == pytest.approx(1.5)
    assert (found.met, found.detail) == (True, "1.5")
    assert clause.judge(outcome({"ringd": 10e-3, **ALL_MPIS})).met is False


def test_a_clause_about_one_peer_is_judged_by_that_peer() -> None:
    clause = Ahead("4 times torch", 4.0, ("torch",))
    assert clause.judge(outcome({"ringd": 8e-3, "torch": 30e-3, **ALL_MPIS})).met is False
    assert clause.judge(outcome({"ringd": 7e-3, "torch": 30e-3, **ALL_MPIS})).met is True
    absent = clause.judge(outcome({"ringd": 7e-3, **ALL_MPIS}))
    assert (absent.met, absent.detail) == (None, "no torch")


def test_without_one_of_the_peers_nobody_knows_the_best_but_who_is_ahead_is_ahead() -> None:
    clause = Ahead("no peer ahead", 1.0, MPIS)
    absent = clause.judge(outcome({"ringd": 8e-3, "openmpi": 20e-3, "mpich": 30e-3}))
    assert (absent.met, absent.detail) == (None, "2.5 without intelmpi")
    assert clause.judge(outcome({"ringd": 25e-3, "openmpi": 20e-3})).met is False


def test_who_is_level_with_the_best_peer_has_none_ahead() -> None:
    clause = Ahead("no peer ahead", 1.0, ("torch",))
    assert clause.judge(outcome({"ringd": 842.9e-3, "torch": 842.7e-3})).met is True
    assert clause.judge(outcome({"ringd": 845.4e-3, "torch": 843.5e-3})).met is False


def test_a_peer_that_cannot_do_the_work_is_not_missed() -> None:
    clause = Ahead("no peer ahead", 1.0, MPIS)
    times = {"ringd": 8e-3, "openmpi": 20e-3, "mpich": 30e-3}
    assert clause.judge(outcome(times, unable=frozenset({"intelmpi"}))).met is True


def test_horovod_is_missed_only_where_it_is_named_alone() -> None:
    times = {"ringd": 1e-3, "torch": 30e-3}
    assert Ahead("no peer ahead", 1.0, ("torch", "horovod")).judge(outcome(times)).met is True
    assert Ahead("5 times Horovod", 5.0, ("horovod",)).judge(outcome(times)).met is None


def test_in_either_state_means_near_and_far() -> None:
    clause = Ahead("1.3 times in either state", 1.3, ("openmpi",), either_state=True)
    good, bad = {"ringd": 1.0, "openmpi": 2.0}, {"ringd": 1.0, "openmpi": 1.2}
    both = clause.judge(outcome(good, {"near": good, "far": {"ringd": 2.0, "openmpi": 3.0}}))
    assert (both.met, both.value, both.detail) == (True, 1.5, "near 2, far 1.5")
    one = clause.judge(outcome(good, {"near": good, "all": good}))
    assert (one.met, one.detail) == (None, "near 2, far not seen often enough")
    assert clause.judge(outcome(good, {"near": good, "far": bad})).met is False
    assert clause.judge(outcome(bad, {"near": bad})).met is False
    half = clause.judge(outcome(good, {"near": good, "far": {"ringd": 1.0}}))
    assert (half.met, half.detail) == (None, "near 2, far no openmpi")


def test_elements_per_second_are_those_of_the_reference_in_this_run() -> None:
    clause = ElementRate("1.8 times f32's", 1.8, "ringd, f32")
    elements = {"ringd, f32": 500}  # as many bytes
    times = {"ringd": 5.0e-3, "ringd, f32": 4.8e-3, "openmpi": 1.0}
    assert clause.judge(outcome(times, reference_elements=elements)).value == pytest.approx(1.92)
    assert clause.judge(outcome(times, reference_elements=elements)).met is True
    slow = {**times, "ringd": 5.4e-3}
    assert clause.judge(outcome(slow, reference_elements=elements)).met is False
    assert clause.judge(outcome({"ringd": 5e-3}, reference_elements=elements)).met is None


def test_a_slowdown_is_against_the_same_work_undisturbed() -> None:
    clause = Slowdown("degrades by the core's share", 2.5, "ringd, undisturbed")
    twice = clause.judge(outcome({"ringd": 10e-3, "ringd, undisturbed": 5e-3}))
    assert (twice.met, twice.detail) == (True, "2")
    assert clause.judge(outcome({"ringd": 13e-3, "ringd, undisturbed": 5e-3})).met is False
    assert clause.judge(outcome({"ringd": 1e-3, "openmpi": 9.0})).met is None


def test_a_share_of_the_line_and_a_time() -> None:
    share = LineShare("95.5 % of the line", 0.955).judge(outcome({"ringd": 5.3e-3}))
    assert (share.met, share.detail) == (False, "94.3 %")
    assert LineShare("", 0.94).judge(outcome({"ringd": 5.3e-3})).met is True
    assert AtMost("2 us at most", 2e-6).judge(outcome({"ringd": 0.8e-6})).met is True
    assert AtMost("2 us at most", 2e-6).judge(outcome({"ringd": 2.1e-6})).detail == "2.1 us"


def test_a_step_that_leaves_nothing_to_wait_for_is_ahead() -> None:
    found = Ahead("best of all", 1.0, ("mpich",)).judge(outcome({"ringd": 0.0, "mpich": 1e-6}))
    assert (found.met, found.value) == (True, None)


def test_a_step_is_compared_as_a_whole() -> None:
    times = {"ringd": 100e-6, "mpich": 50e-6}
    assert Ahead("best of all", 1.0, ("mpich",)).judge(outcome(times)).met is False
    found = Ahead("best of all", 1.0, ("mpich",), besides=0.3).judge(outcome(times))
    assert found.met is True
    assert found.value == pytest.approx(1.0, abs=1e-3)
    slow = {"ringd": 2e-3, "mpich": 50e-6}
    assert Ahead("best of all", 1.0, ("mpich",), besides=0.3).judge(outcome(slow)).met is False


@pytest.mark.parametrize(
    "clause",
    [
        Ahead("a", 1.0, ("mpich",)),
        LineShare("b", 0.9),
        AtMost("c", 1.0),
        ElementRate("d", 1.8, "ringd, f32"),
        Slowdown("e", 2.5, "ringd, undisturbed"),
    ],
)
def test_without_ringd_nothing_is_judged(clause: Ahead) -> None:
    assert clause.judge(outcome({"mpich": 1.0, "ringd, f32": 1.0})).met is None


def test_a_goal_is_met_only_if_every_clause_is() -> None:
    assert all_hold([True, True]) is True
    assert all_hold([True, None]) is None
    assert all_hold([None, False]) is False
    assert all_hold([]) is None


@pytest.mark.parametrize(
    ("spent", "met", "detail"),
    [
        ({"ringd": 0.10, "torch": 0.10}, True, "1"),
        ({"ringd": 0.12, "torch": 0.10}, False, "1.2"),
        ({"ringd": 0.10}, None, "no torch"),
        ({"torch": 0.10}, None, "no ringd"),
    ],
)
def test_processor_time_is_compared_with_that_peers(
    spent: Mapping[str, float], met: bool | None, detail: str
) -> None:
    clause = ProcessorTimeAtMost("at most torch's processor time", "torch")
    found = clause.judge(outcome({"ringd": 1.0, "torch": 9.0}, processor=spent))
    assert (found.met, found.detail) == (met, detail)


@pytest.mark.parametrize(
    ("ringd", "torch", "met", "detail"),
    [
        (0.110, 0.120, True, "0.5"),
        (0.115, 0.120, False, "0.75"),
        (0.099, 0.120, True, "0"),
        (0.110, 0.100, None, "torch takes no longer than alone"),
    ],
)
def test_what_a_step_takes_beyond_computing_is_compared(
    ringd: float, torch: float, met: bool | None, detail: str
) -> None:
    clause = Beyond("half of torch's time beyond computing", 0.501, "torch", "alone")
    found = clause.judge(outcome({"ringd": ringd, "torch": torch, "alone": 0.100}))
    assert (found.met, found.detail) == (met, detail)
    assert clause.judge(outcome({"ringd": ringd, "torch": torch})).met is None
