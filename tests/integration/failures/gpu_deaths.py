"""Who dies amid an operation on GPUs, and what the others hear: the same wherever it is reduced.

The ranks of the jobs here say "in flight", "lost" with the error's text, and "released" when what
was behind the operation on their stream has run.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.integration.cluster import Cluster, JobRun
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    the_same_text,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.undisturbed import UndisturbedJob


def forking(source: str) -> str:
    """`source` with a child of each rank, which lives for 3 s and is told with "in flight"."""
    return source.replace(
        '        say("in flight")\n',
        """        import os
        import time

        child = os.fork()
        if child == 0:
            time.sleep(3)
            # What libc's exit handlers do here is not the parent's affair.
            import ctypes

            ctypes.CDLL(None).exit(5)
        say("in flight", child=child)
""",
    )


def expect_children_to_end(children: list[int]) -> None:
    deadline = time.monotonic() + 10
    for child in children:
        while Path(f"/proc/{child}/maps").exists() and Path(f"/proc/{child}/maps").read_text():
            assert time.monotonic() < deadline, "the child of a trainer does not end"
            time.sleep(0.05)


def expect_killed_trainer(job: JobRun, *words: str) -> None:
    """Kills rank 1 of two."""
    survivor, victim = job.ranks
    begin = time.monotonic()
    victim.process.kill()
    lost = wait_for_event(survivor, "lost")
    expect_within([lost], begin, 1.0)
    expect_words(lost["text"], "rank 1", "signal 9", *words)
    expect_within([wait_for_event(survivor, "released")], begin, 2.0)


def expect_killed_trainer_beside_others(cluster: Cluster, job: JobRun, *words: str) -> None:
    other = UndisturbedJob(cluster, [1, 1])
    expect_killed_trainer(job, f"pid {job.ranks[1].pid}", *words)
    assert other.finish() > 0


def expect_killed_engine(job: JobRun, *, lost_s: float, released_s: float) -> None:
    engine = engine_of(job.ranks[1])
    begin = time.monotonic()
    os.kill(engine, signal.SIGKILL)
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, begin, lost_s)
    expect_words(the_same_text(lost), f"pid {engine} on {job.ranks[1].node.name}", "killed by signal 9")
    expect_within(wait_for_all(job.ranks, "released"), begin, released_s)


def expect_killed_ringd(job: JobRun, *, released_s: float) -> None:
    node = job.ranks[1].node
    begin = time.monotonic()
    node.kill()
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, begin, 1.5)
    expect_words(lost[1]["text"], f"pid {node.pid}", node.name)
    expect_within(wait_for_all(job.ranks, "released"), begin, released_s)
