"""A node whose ringd is well, and that cannot be reached over the network for data."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.integration.failures.events import expect_words, start_trainers, wait_for_all
from tests.integration.shaped_line import SECOND_NETWORK, TwoLines, ip
from tests.integration.two_ends import TwoEnds, two_ends

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")

ONE_SUM = """
    from trainer import Trainer, run


    def main():
        Trainer().all_reduce("gradient", count=1 << 20)


    run(main)
"""


@pytest.fixture
def ends() -> Iterator[TwoEnds[TwoLines]]:
    with two_ends(TwoLines(1000), data_interfaces="eth1") as ends:
        yield ends


def test_the_address_is_named_and_not_an_end_of_its_ringd(ends: TwoEnds[TwoLines]) -> None:
    for end in range(2):
        other = f"{SECOND_NETWORK}.{2 - end}"
        ip("-n", ends.line.inside(end)[-1], "route", "add", "unreachable", other)
    job = start_trainers(ends, ONE_SUM, [1, 1])
    errors = wait_for_all(job.ranks, "error")
    for error in errors:
        expect_words(error["text"], f"{SECOND_NETWORK}.", "No route to host", "'gradient'")
        assert "ended or lost its connection" not in error["text"]
