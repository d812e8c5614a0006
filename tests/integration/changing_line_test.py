"""A plan follows the line: when that becomes faster or slower amid a job, ringd notices."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import wait_until
from tests.integration.shaped_line import ShapedLine
from tests.integration.two_ends import TwoEnds

PROGRAM = (Path(__file__).parent / "programs" / "until_told.py").read_text()
# A layer's gradient is ready every 5 ms, and takes 42 ms on the first line: while one is under way
# the others become ready, and go together. On the second line, where one takes 8 ms, that would
# leave the line idle until the last of them is ready.
MIB = 8
TENSORS = 9
BETWEEN_MS = 5
SLOW_MBIT = 200
FAST_MBIT = 1000
# What an all-reduce takes is the median of the last 32 of its size: that needs some 20 steps of
# 0.1 s, and several times that on a busy machine; what buckets took alone before is forgotten after
# 64 of a third of a second.
NOTICED_WITHIN_S = 60.0
SETTLED_STEPS = 20

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")


class Ends(TwoEnds[ShapedLine]):
    """Two ringds, and what the first one shows of a plan."""

    def plan(self) -> dict[str, Any]:
        """What the first node shows; empty while it knows of none."""
        shown = self.ringctl("comms", "--plan", "--json")
        assert shown.returncode == 0, shown.stderr
        (entry,) = json.loads(shown.stdout)["communicators"] or [{}]
        plan = entry.get("plan") or {}
        return plan if (plan.get("link") or {}).get("source") == "measured" else {}


def tensors(plan: dict[str, Any]) -> list[int]:
    """How many are in each bucket; of a plan in force, so that none is missing."""
    counts = [int(bucket["tensors"]) for bucket in plan["buckets"]]
    return counts if sum(counts) == TENSORS else []


def is_near(plan: dict[str, Any], mbit: int) -> bool:
    """The measured line is one of about that rate, rather than of the other."""
    return 0.5 * mbit / 1000 < plan["link"]["gbit_per_second"] < 2 * mbit / 1000


@pytest.fixture
def rates(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Of the line, in Mbit/s: at first, and then."""
    before, after = request.param
    return before, after


@pytest.fixture
def ends(rates: tuple[int, int]) -> Iterator[Ends]:
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    cluster = Ends(folder, ShapedLine(rates[0]), streams_per_neighbour=1)
    try:
        yield cluster
    finally:
        try:
            cluster.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class Training:
    """A job in its steady state."""

    def __init__(self, ends: Ends, mbit: int, **environment: str) -> None:
        self.ends = ends
        self.notes = ends.folder / "notes"
        self.notes.mkdir()
        arguments = [str(self.notes), str(MIB), str(BETWEEN_MS)]
        self.job = ends.start_job(PROGRAM, [1, 1], arguments=arguments, environment=environment)
        wait_until(self._is_settled, "a plan that stays")
        self.plan_before = ends.plan()
        assert sum(tensors(self.plan_before)) == TENSORS, self.plan_before
        assert is_near(self.plan_before, mbit), self.plan_before["link"]

    def steps(self) -> int:
        assert all(rank.running() for rank in self.job.ranks), self.job.transcript()
        note = self.notes / "steps0"
        return note.stat().st_size if note.exists() else 0

    def plan_after_steps(self, count: int) -> dict[str, Any]:
        done = self.steps()
        wait_until(lambda: self.steps() >= done + count, f"{count} more steps")
        return self.ends.plan()

    def _is_settled(self) -> bool:
        before, plan = self.ends.plan(), self.plan_after_steps(SETTLED_STEPS)
        print("before", plan.get("replans"), len(plan.get("buckets", [])), plan.get("link"))
        return bool(before) and before["replans"] == plan["replans"]

    def end(self) -> None:
        # The ranks check every sum; also those of a new plan.
        self.plan_after_steps(5)
        (self.notes / "end").touch()
        self.job.expect_success()


@pytest.mark.parametrize("rates", [(SLOW_MBIT, FAST_MBIT)], indirect=True)
def test_a_line_that_becomes_faster_is_planned_for(ends: Ends, rates: tuple[int, int]) -> None:
    training = Training(ends, rates[0])

    def is_replanned() -> bool:
        plan = training.plan_after_steps(1)
        return int(plan["replans"]) > int(training.plan_before["replans"])

    ends.line.set_rate(rates[1])
    wait_until(is_replanned, "another plan", NOTICED_WITHIN_S)
    # The nodes come to the buckets of the new plan at their next steps.
    wait_until(lambda: tensors(ends.plan()) not in ([], tensors(training.plan_before)), "other buckets")
    plan = ends.plan()
    print("after", plan["replans"], len(plan["buckets"]), plan["link"])
    assert plan["began_as"] == "learned"
    assert plan["origin"] == "replanned"
    assert is_near(plan, rates[1]), plan["link"]
    assert "planned anew from measurements" in ends.ringctl("comms", "--plan").stdout
    training.end()


@pytest.mark.parametrize("rates", [(FAST_MBIT, SLOW_MBIT)], indirect=True)
def test_a_line_that_becomes_slower_is_noticed(ends: Ends, rates: tuple[int, int]) -> None:
    # Whether another plan is worth it then is the model's business: on a full line it hardly
    # matters.
    training = Training(ends, rates[0])
    ends.line.set_rate(rates[1])

    def is_noticed() -> bool:
        plan = training.plan_after_steps(1)
        print("after", training.steps(), plan["link"]["gbit_per_second"], plan["link"]["samples"])
        return is_near(plan, rates[1])

    wait_until(is_noticed, "a slower line", NOTICED_WITHIN_S)
    training.end()


@pytest.mark.parametrize("rates", [(SLOW_MBIT, FAST_MBIT)], indirect=True)
def test_a_pinned_plan_stays(ends: Ends, rates: tuple[int, int]) -> None:
    training = Training(ends, rates[0], RINGD_FUSION="pinned")
    ends.line.set_rate(rates[1])
    wait_until(lambda: is_near(training.plan_after_steps(1), rates[1]), "a faster line", NOTICED_WITHIN_S)
    plan = training.plan_after_steps(SETTLED_STEPS)
    assert plan["fusion"] == "pinned"
    assert tensors(plan) == tensors(training.plan_before)
    assert plan["replans"] == training.plan_before["replans"]
    training.end()
