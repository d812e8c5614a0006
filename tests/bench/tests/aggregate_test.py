"""Batches become one value for each contestant."""

from __future__ import annotations

import dataclasses

from harness.aggregate import headline, judgements, verdicts
from harness.goals import Ahead, Clause, ElementRate
from harness.processor_time import ProcessorTime
from harness.report import row_json, row_text
from harness.row import Measured, Reference, Row, Sample
from harness.site import Topology
from harness.table import render_row
from harness.work import Way, one_tensor

NEAR, FAR = 120.0, 400.0
NO_PEER_AHEAD = Ahead("no peer ahead", 1.0, ("openmpi",))


def measured(*samples: Sample, computing: float = 0.0, goals: tuple[Clause, ...] = ()) -> Measured:
    row = Row(
        name="host/2 ranks/64 KiB",
        topology=Topology(1, 2),
        tensors=one_tensor(65536),
        ways={"ringd": [Way("learned")], "openmpi": [Way("sm"), Way("ucx")]},
        goals=goals,
        computing_seconds=computing,
    )
    return Measured(row, floor_seconds=1e-6, floor_kind="memory", samples=list(samples))


def sample(contestant: str, way: str, *seconds: float, before: float = NEAR, after: float = NEAR) -> Sample:
    return Sample(contestant, way, seconds, before, after, load=0.1)


def test_a_contestant_counts_with_its_best_way_and_the_ratio_is_against_the_best_peer() -> None:
    verdict = headline(
        measured(
            sample("ringd", "learned", 4e-6, 5e-6, 6e-6),
            sample("openmpi", "sm", 20e-6),
            sample("openmpi", "ucx", 10e-6),
            sample("mpich", "tuned", 15e-6),
        )
    )
    assert verdict is not None
    assert verdict.times == {"ringd": 5e-6, "openmpi": 10e-6, "mpich": 15e-6}
    assert verdict.best_way["openmpi"] == "ucx"
    assert verdict.best_peer == "openmpi"
    assert verdict.ratio == 2.0


def test_states_of_the_machine_are_kept_apart() -> None:
    found = verdicts(
        measured(
            sample("ringd", "learned", 1e-6),
            sample("ringd", "learned", 9e-6, before=FAR, after=FAR),
            sample("openmpi", "sm", 2e-6),
            sample("openmpi", "sm", 7e-6, before=NEAR, after=FAR),
        )
    )
    assert set(found) == {"near", "far", "mixed", "all"}
    assert found["near"].ratio == 2.0
    assert found["far"].best_peer is None
    assert found["far"].ratio is None


def test_the_headline_is_the_state_with_most_batches_that_has_everybody() -> None:
    far = {"before": FAR, "after": FAR}
    one = measured(
        sample("ringd", "learned", *[1e-6] * 10),
        sample("ringd", "learned", *[1e-6] * 10),
        sample("ringd", "learned", *[3e-6] * 10, **far),
        sample("openmpi", "sm", *[6e-6] * 10, **far),
    )
    chosen = headline(one)
    assert chosen is not None
    assert (chosen.state, chosen.ratio) == ("far", 2.0)


def test_a_state_with_few_calls_of_a_contestant_does_not_stand_for_the_row() -> None:
    one = measured(
        sample("ringd", "learned", *[1e-6] * 20),
        sample("openmpi", "sm", *[2e-6] * 9),
        sample("openmpi", "ucx", *[3e-6] * 9),
        sample("openmpi", "sm", *[4e-6] * 11, before=FAR, after=FAR),
    )
    chosen = headline(one)
    assert chosen is not None
    assert (chosen.state, chosen.ratio) == ("all", 3.0)


def test_without_a_complete_state_all_batches_are_taken_together() -> None:
    one = measured(sample("ringd", "learned", 1e-6), sample("openmpi", "sm", 6e-6, before=FAR, after=FAR))
    chosen = headline(one)
    assert chosen is not None
    assert chosen.state == "all"


def test_computing_is_subtracted_and_never_makes_a_time_negative() -> None:
    chosen = headline(measured(sample("ringd", "learned", 0.5), sample("openmpi", "sm", 0.75), computing=0.5))
    assert chosen is not None
    assert chosen.times == {"ringd": 0.0, "openmpi": 0.25}
    assert chosen.ratio is None


def test_nothing_measured_has_no_verdict() -> None:
    assert headline(measured()) is None
    entry = row_json(measured())
    assert entry["ringd"] is None
    assert entry["ratio"] is None


def test_a_row_in_json_has_the_documented_keys_and_judges_its_goal() -> None:
    goals = (Ahead("1.3 times", 1.3, ("openmpi",)),)
    fast = row_json(measured(sample("ringd", "learned", 5e-6), sample("openmpi", "sm", 7e-6), goals=goals))
    for key in ("row", "metric", "unit", "ringd", "peers", "best_peer", "ratio", "floor", "below_floor"):
        assert key in fast
    assert (fast["unit"], fast["ringd"], fast["peers"], fast["ratio"]) == ("us", 5.0, {"openmpi": 7.0}, 1.4)
    assert fast["met"] is True
    assert fast["clauses"] == [{"clause": "1.3 times", "met": True, "value": 1.4, "detail": "1.4"}]
    assert fast["floor_distance"] == 5.0
    slow = row_json(measured(sample("ringd", "learned", 6e-6), sample("openmpi", "sm", 7e-6), goals=goals))
    assert slow["met"] is False


def with_f32(*samples: Sample) -> Measured:
    """As a row of f16: a reference beside the peers, and a goal of two clauses."""
    one = measured(*samples, goals=(ElementRate("1.8 times f32's", 1.8, "ringd, f32"), NO_PEER_AHEAD))
    references = {"ringd, f32": Reference([Way("learned")], one_tensor(65536), "f32")}
    row = dataclasses.replace(one.row, tensors=one_tensor(65536, "f16"), dtype="f16", references=references)
    return dataclasses.replace(one, row=row)


def test_a_reference_is_no_peer_and_a_clause_is_judged_by_it() -> None:
    one = row_json(
        with_f32(
            sample("ringd", "learned", 5e-6),
            sample("ringd, f32", "learned", 4e-6),
            sample("openmpi", "sm", 6e-6),
        )
    )
    assert (one["best_peer"], one["peers"], one["references"]) == (
        "openmpi",
        {"openmpi": 6.0},
        {"ringd, f32": 4.0},
    )
    assert [clause["met"] for clause in one["clauses"]] == [False, True]
    assert one["clauses"][0]["value"] == 1.6
    assert one["met"] is False
    cell = "1.8 times f32's: **missed** (1.6); no peer ahead: met (1.2)"
    assert cell in render_row(one, "now")
    assert "1.8 times f32's: MISSED (1.6)" in row_text(one)


def test_without_its_reference_a_clause_is_not_judged_and_the_row_not_met() -> None:
    one = row_json(with_f32(sample("ringd", "learned", 1e-6), sample("openmpi", "sm", 6e-6)))
    assert [clause["met"] for clause in one["clauses"]] == [None, True]
    assert one["met"] is None
    assert "1.8 times f32's: not judged (no ringd, f32)" in render_row(one, "now")


def test_the_headline_needs_the_reference_in_the_same_state() -> None:
    chosen = headline(
        with_f32(
            sample("ringd", "learned", 5e-6),
            sample("openmpi", "sm", 6e-6),
            sample("ringd, f32", "learned", 4e-6, before=FAR, after=FAR),
        )
    )
    assert chosen is not None
    assert chosen.state == "all"


def test_a_value_below_the_floor_is_told() -> None:
    entry = row_json(measured(sample("ringd", "learned", 0.8e-6), sample("openmpi", "sm", 7e-6)))
    assert entry["below_floor"] == ["ringd"]
    assert "(ringd below the probe's floor)" in render_row(entry, "now")
    assert "ringd below the probe's floor" in row_text(entry)
    above = row_json(measured(sample("ringd", "learned", 1.2e-6)))
    assert above["below_floor"] == []
    assert "below" not in row_text(above) + render_row(above, "now")


def test_beside_a_busy_neighbour_the_calls_that_waited_for_it_count() -> None:
    calls = [1e-6, 1e-6, 1e-6, 9e-6]
    alone = measured(sample("ringd", "learned", *calls))
    beside = dataclasses.replace(alone, row=dataclasses.replace(alone.row, busy_neighbour=True))
    assert row_json(alone)["ringd"] == 1.0
    assert row_json(beside)["ringd"] == 3.0
    assert row_json(beside)["metric"] == "average time"


def test_processor_time_is_that_of_the_best_way_and_of_every_byte_of_all_ranks() -> None:
    def with_processor(contestant: str, way: str, seconds: float, machine: float) -> Sample:
        spent = ProcessorTime(machine / 2, machine)
        return dataclasses.replace(sample(contestant, way, seconds), processor=spent)

    entry = row_json(
        measured(
            with_processor("ringd", "learned", 5e-6, 8e-6),
            with_processor("ringd", "learned", 5e-6, 10e-6),
            with_processor("openmpi", "sm", 20e-6, 1e-6),
            with_processor("openmpi", "ucx", 10e-6, 20e-6),
        )
    )
    # Two ranks of 64 KiB each.
    assert entry["processor"]["ringd"] == {"processes": 4.5, "machine": 9.0, "machine_ns_per_byte": 0.06866}
    assert entry["processor"]["openmpi"]["machine"] == 20.0
    assert "processor 9 us (4.5 in its processes)" in row_text(entry)
    assert "| ringd 9; openmpi 20 |" in render_row(entry, "now")


def test_a_row_without_processor_time_says_nothing_of_it() -> None:
    entry = row_json(measured(sample("ringd", "learned", 5e-6)))
    assert entry["processor"] == {}
    assert "processor" not in row_text(entry)


def test_another_build_of_ringd_is_the_best_peer_only_where_there_is_no_other() -> None:
    own, before = sample("ringd", "learned", 4e-6), sample("before", "learned", 6e-6)
    alone = headline(measured(own, before))
    assert alone is not None
    assert (alone.best_peer, alone.ratio) == ("before", 1.5)
    beside = headline(measured(own, before, sample("openmpi", "sm", 8e-6)))
    assert beside is not None
    assert (beside.best_peer, beside.ratio) == ("openmpi", 2.0)


def test_a_state_of_a_few_calls_meets_no_clause_about_both() -> None:
    twice = Ahead("twice Open MPI in either state", 2.0, ("openmpi",), either_state=True)
    near = [sample("ringd", "learned", *[1e-6] * 10), sample("openmpi", "sm", *[3e-6] * 10)]
    far = [
        sample("ringd", "learned", 1e-6, before=FAR, after=FAR),
        sample("openmpi", "sm", 9e-6, before=FAR, after=FAR),
    ]
    (clause,) = judgements(measured(*near, *far, goals=(twice,)))
    assert (clause.met, clause.value) == (None, 3.0)
    assert "far not seen often enough" in clause.detail
    (clause,) = judgements(measured(*near, *far * 10, goals=(twice,)))
    assert clause.met is True
