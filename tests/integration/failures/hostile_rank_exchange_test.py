"""What a hostile rank does to what it shares with ringd is its own job's harm: other jobs' steps go
on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.failures.events import PROGRAMS, parse_events, start_trainers, wait_for_event
from tests.integration.failures.undisturbed import UndisturbedJob

# A job of whose engine nobody hears is told so after 5 s; as much again is for a busy machine.
LONGEST_S = 10


@contextlib.contextmanager
def attacked(cluster: Cluster, attack: str, ranks_per_node: list[int]) -> Iterator[JobRun]:
    """A job whose ranks are hostile; what they have started or stopped ends with it."""
    job = start_trainers(
        cluster,
        (PROGRAMS / "hostile_rank_exchange.py").read_text(),
        ranks_per_node,
        environment={"ATTACK": attack},
    )
    try:
        yield job
    finally:
        for event in parse_events(job.transcript(), "keeper") + parse_events(job.transcript(), "stops"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(event["pid"], signal.SIGKILL)


def keep_apart(pids: list[int]) -> None:
    """Leaves the first processor to the attacker, where there are several: he has to come in the
    middle of ringd's turns."""
    first, *others = sorted(os.sched_getaffinity(0))
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), others or {first})


def expect_answers(cluster: Cluster, seconds: float) -> None:
    """Both engines answer at once, all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for node in cluster.nodes:
            began = time.monotonic()
            assert cluster.ringctl("jobs", "--json", node=node).returncode == 0, node.name
            assert time.monotonic() - began < LONGEST_S, node.name
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("attack", "layout"),
    [("write", [1, 1]), ("linger", [1, 1]), ("lifeline", [1, 1])],
    ids=["a full eventfd that waits for room", "a socket that lingers", "a lingering socket in the lifeline"],
)
def test_a_hostile_rank_harms_no_other_job(cluster: Cluster, attack: str, layout: list[int]) -> None:
    nodes = cluster.start_nodes(2)
    undisturbed = UndisturbedJob(cluster, [1, 1])
    keep_apart([node.pid for node in nodes] + [rank.pid for rank in undisturbed.ranks])
    with attacked(cluster, attack, layout) as job:
        wait_for_event(job.ranks[0], "attacked")
        expect_answers(cluster, 3)
        assert undisturbed.finish() > 0
        expect_answers(cluster, 1)
