"""Batches become one value for each contestant."""

from __future__ import annotations

from harness.aggregate import headline, verdicts
from harness.report import row_json
from harness.row import Measured, Row, Sample
from harness.site import Topology
from harness.work import Way, one_tensor

NEAR, FAR = 120.0, 400.0


def measured(*samples: Sample, computing: float = 0.0, ratio: float | None = None) -> Measured:
    row = Row(
        name="host/2 ranks/64 KiB",
        topology=Topology(1, 2),
        tensors=one_tensor(65536),
        ways={"ringd": [Way("learned")], "openmpi": [Way("sm"), Way("ucx")]},
        goal="1.3 times" if ratio else "",
        goal_ratio=ratio,
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
        sample("ringd", "learned", 1e-6),
        sample("ringd", "learned", 1e-6),
        sample("ringd", "learned", 3e-6, **far),
        sample("openmpi", "sm", 6e-6, **far),
    )
    chosen = headline(one)
    assert chosen is not None
    assert (chosen.state, chosen.ratio) == ("far", 2.0)


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
    fast = row_json(measured(sample("ringd", "learned", 5e-6), sample("openmpi", "sm", 7e-6), ratio=1.3))
    for key in ("row", "metric", "unit", "ringd", "peers", "best_peer", "ratio", "floor"):
        assert key in fast
    assert (fast["unit"], fast["ringd"], fast["peers"], fast["ratio"]) == ("us", 5.0, {"openmpi": 7.0}, 1.4)
    assert fast["met"] is True
    assert fast["floor_distance"] == 5.0
    slow = row_json(measured(sample("ringd", "learned", 6e-6), sample("openmpi", "sm", 7e-6), ratio=1.3))
    assert slow["met"] is False
