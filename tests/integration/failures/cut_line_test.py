"""The line between two nodes is cut, and nobody is told: the ranks on either side hear which node
was lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.integration.failures.events import expect_within, expect_words, start_trainers, wait_for_all
from tests.integration.two_ends import TwoEnds, two_ends
from tests.soak.network import Network

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")

# Bulk is in flight all the time.
WORKS_ON = """
    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        step = 0
        while True:
            assert trainer.all_reduce("gradient", count=1 << 20) == trainer.size
            step += 1
            if step == 5:
                say("working")


    run(main)
"""


@pytest.fixture(params=["tcp", "ucx"])
def ends(request: pytest.FixtureRequest) -> Iterator[TwoEnds[Network]]:
    with two_ends(Network(), backend=request.param) as ends:
        yield ends


def test_both_sides_of_a_cut_line_hear_which_node_was_lost(ends: TwoEnds[Network]) -> None:
    job = start_trainers(ends, WORKS_ON, [1, 1])
    wait_for_all(job.ranks, "working")
    cut = time.monotonic()
    ends.line.cut(1)
    errors = wait_for_all(job.ranks, "error")
    # README: within about 3 s; the rest is for a machine that has other things to do.
    expect_within(errors, cut, 8)
    for error, lost in zip(errors, reversed(ends.nodes), strict=True):
        assert error["kind"] == "JobFailedError"
        expect_words(error["text"], f"ringd on {lost.name}", "'gradient'")
    assert job.wait() == [3, 3]
    # Either side goes on by itself, and with the other one when the line is there again.
    ends.line.mend(1)
    start_trainers(ends, "from trainer import Trainer, run\nrun(Trainer)", [1, 1]).expect_success()
