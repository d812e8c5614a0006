"""A job that works beside what goes wrong, and must notice nothing of it."""

from __future__ import annotations

import itertools

from tests.integration.cluster import Cluster, Rank
from tests.integration.failures.events import PROGRAMS, parse_events, start_trainers, wait_for_all

_numbers = itertools.count(1)


class UndisturbedJob:
    """Reduces without pause, and compares every sum, until it is told to stop."""

    def __init__(self, cluster: Cluster, ranks_per_node: list[int]) -> None:
        self._stop = cluster.folder / f"stop-{next(_numbers)}"
        self._job = start_trainers(
            cluster,
            (PROGRAMS / "undisturbed.py").read_text(),
            ranks_per_node,
            environment={"STOP": str(self._stop)},
        )
        wait_for_all(self._job.ranks, "working")

    @property
    def ranks(self) -> list[Rank]:
        """Its processes."""
        return self._job.ranks

    def running(self) -> bool:
        """Whether all ranks still work."""
        return all(rank.running() for rank in self._job.ranks)

    def finish(self) -> int:
        """Lets it end; fails unless it ended well. The steps done by each rank."""
        assert self.running(), self._job.transcript()
        self._stop.touch()
        self._job.expect_success()
        counts = {event["count"] for rank in self._job.ranks for event in parse_events(rank.output, "steps")}
        assert len(counts) == 1, counts
        return int(counts.pop())
