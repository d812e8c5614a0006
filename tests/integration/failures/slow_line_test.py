"""An operation that takes its time on a slow line is no stall."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.integration.failures.events import parse_events, start_trainers
from tests.integration.shaped_line import ShapedLine
from tests.integration.two_ends import TwoEnds, two_ends

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")

RATE_MBIT = 100
# 32 MiB, which go both ways: 2.7 s.
LARGE = """
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        begin = time.monotonic()
        assert trainer.all_reduce("large", count=8 << 20) == trainer.size
        say("took", seconds=time.monotonic() - begin)


    run(main)
"""


@pytest.fixture
def ends() -> Iterator[TwoEnds[ShapedLine]]:
    with two_ends(ShapedLine(RATE_MBIT), stall_warning="1s") as ends:
        yield ends


def test_nobody_is_warned_while_the_data_moves(ends: TwoEnds[ShapedLine]) -> None:
    job = start_trainers(ends, LARGE, [1, 1])
    job.expect_success()
    for rank in job.ranks:
        (took,) = parse_events(rank.output, "took")
        assert took["seconds"] > 2
        assert "does not arrive" not in rank.output
