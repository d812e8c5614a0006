"""A plan follows the line: when that becomes faster amid a job, the buckets are planned anew."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Node, wait_until
from tests.integration.shaped_line import ShapedLine

PROGRAM = (Path(__file__).parent / "programs" / "until_told.py").read_text()
# A layer's gradient is ready every 5 ms, and takes 42 ms on the first line: while one is under way the others become ready, and
# go together. On the second line, where one takes 8 ms, that would leave the line idle until the last of them is ready.
MIB = 8
TENSORS = 9
BETWEEN_MS = 5
SLOW_MBIT = 200
FAST_MBIT = 1000
# What an all-reduce takes is the median of the last 32 of its size: that needs some 20 steps of 0.1 s, and several
# times that on a busy machine.
REPLANNED_WITHIN_S = 45.0
SETTLED_STEPS = 20

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")


class TwoEnds(Cluster):
    """Two ringds at the ends of a line."""

    def __init__(self, folder: Path, line: ShapedLine) -> None:
        super().__init__(folder)
        self.line = line
        self.start_nodes(2, streams_per_neighbour=1)

    def _start(self, name: str, settings: dict[str, object]) -> Node:
        end = int(name.removeprefix("node"))
        address = {"peer_address": f"{self.line.address(end)}:0"}
        return Node(name, self.folder, settings | address, self.line.inside(end))

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


@pytest.fixture
def ends() -> Iterator[TwoEnds]:
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    line = ShapedLine(SLOW_MBIT)
    cluster = TwoEnds(folder, line)
    try:
        yield cluster
    finally:
        try:
            cluster.end()
        finally:
            line.close()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(240)
def test_a_line_that_becomes_faster_is_planned_for(ends: TwoEnds) -> None:
    notes = ends.folder / "notes"
    notes.mkdir()
    job = ends.start_job(PROGRAM, [1, 1], arguments=[str(notes), str(MIB), str(BETWEEN_MS)])

    def steps() -> int:
        assert all(rank.running() for rank in job.ranks), job.transcript()
        note = notes / "steps0"
        return note.stat().st_size if note.exists() else 0

    def after_steps(count: int) -> dict[str, Any]:
        done = steps()
        wait_until(lambda: steps() >= done + count, f"{count} more steps")
        return ends.plan()

    def is_settled() -> bool:
        before, plan = ends.plan(), after_steps(SETTLED_STEPS)
        print("slow", plan.get("replans"), len(plan.get("buckets", [])), plan.get("link"))
        return bool(before) and before["replans"] == plan["replans"]

    def is_replanned() -> bool:
        plan = after_steps(1)
        return int(plan["replans"]) > int(before["replans"])

    wait_until(is_settled, "a plan that stays")
    before = ends.plan()
    assert sum(tensors(before)) == TENSORS, before
    assert before["link"]["gbit_per_second"] < 2 * SLOW_MBIT / 1000, before["link"]

    ends.line.set_rate(FAST_MBIT)
    wait_until(is_replanned, "another plan", REPLANNED_WITHIN_S)
    # The nodes come to the buckets of the new plan at their next steps.
    wait_until(lambda: tensors(ends.plan()) not in ([], tensors(before)), "other buckets")
    plan = ends.plan()
    print("fast", plan["replans"], len(plan["buckets"]), plan["link"])
    assert plan["began_as"] == "learned"
    assert plan["origin"] == "replanned"
    assert plan["link"]["gbit_per_second"] > 2 * SLOW_MBIT / 1000
    assert "planned anew from measurements" in ends.ringctl("comms", "--plan").stdout
    # The ranks check every sum; also those of the new plan.
    after_steps(5)
    (notes / "end").touch()
    job.expect_success()
