"""Checks that somebody's death by SIGKILL, with a collective on the GPUs, is told in time, and that
nothing waits for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from tests.gpu.harness.check import Findings
from tests.gpu.harness.site import Nodes, Site, expect_success
from tests.integration.cluster import JobRun, Rank
from tests.integration.engines import engine_of, has_ended
from tests.integration.failures.events import BUSY_S, expect_words, wait_for_all, wait_for_event

# A GPU's first use takes long: its context, NCCL's set-up.
START_S = 60.0
# Until the kernel has taken the victim's GPU from it, which comes before anybody can see its end.
END_S = 15.0
# How long to wait for what should take RELEASED_S, so that a hang leaves time for other checks.
HANG_S = 15.0
# After the ranks have submitted: their collective is on the GPUs by then.
LAUNCH_S = 1.0
#: Since the victim has ended: until who survives has heard of it, and until nothing holds its
#: stream any more.
TOLD_S, RELEASED_S = 2.0, 5.0
NEXT_JOB_S = 60.0

#: With words that each must hear.
Survivors = Sequence[tuple[Rank, Sequence[str]]]
#: Kills; returns whom, and who survives.
Kill = Callable[[Nodes, JobRun], tuple[int, Survivors]]


def check_trainer_killed(site: Site) -> Findings:
    """The rank that the others wait for, and then one that waits in NCCL."""
    return Findings(
        [
            die(site, "the rank whose tensor is missing", _kill_trainer, held=1),
            die(site, "a rank whose GPU waits in NCCL", _kill_trainer, held=0),
        ]
    )


def check_engine_killed(site: Site) -> Findings:
    """The engine that waits for its trainer, and then one that waits in NCCL."""
    return Findings(
        [
            die(site, "the engine whose tensor is missing", _kill_engine, held=1),
            die(site, "an engine whose GPU waits in NCCL", _kill_engine, held=0),
        ]
    )


def check_ringd_killed(site: Site) -> Findings:
    """A ringd with its engine; a new one takes its place."""
    return Findings([die(site, "a ringd", _kill_ringd, held=1)])


def _kill_trainer(nodes: Nodes, job: JobRun) -> tuple[int, Survivors]:
    survivor, victim = job.ranks
    victim.process.kill()
    return victim.pid, [(survivor, ["rank 1", f"pid {victim.pid}", "'gradient'"])]


def _kill_engine(nodes: Nodes, job: JobRun) -> tuple[int, Survivors]:
    engine = engine_of(job.ranks[1])
    os.kill(engine, signal.SIGKILL)
    # The other node may have seen the connection's end first, where processors are busy.
    return engine, [(job.ranks[0], ["node1"]), (job.ranks[1], [f"pid {engine} on node1"])]


def _kill_ringd(nodes: Nodes, job: JobRun) -> tuple[int, Survivors]:
    victim = nodes.cluster.nodes[1]
    victim.kill()
    return victim.pid, [
        (job.ranks[0], ["node1"]),
        (job.ranks[1], [f"ringd (pid {victim.pid})", "node1"]),
    ]


def die(site: Site, what: str, kill: Kill, *, held: int) -> str:
    """Two ranks with a collective in flight; a line of what was measured."""
    if site.emulated:
        # What NCCL frees in an abort keeps other threads from the GPU: a driver may do that.
        site = site.with_variables({"RINGD_EMULATOR_CUDA_FREES_HOLD_UP": "1"})
    with site.nodes(2) as nodes:
        job = nodes.start("in_flight.py", [1, 1], {"HELD_RANK": str(held)})
        wait_for_all(job.ranks, "in flight", START_S)
        time.sleep(LAUNCH_S)
        begin = time.monotonic()
        victim, survivors = kill(nodes, job)
        ended = _await_end(what, victim)
        told, released = 0.0, 0.0
        for rank, words in survivors:
            lost = wait_for_event(rank, "lost", START_S)
            expect_words(lost["text"], *words)
            told = max(told, lost["at"] - ended)
            released = max(released, wait_for_event(rank, "released", HANG_S)["at"] - ended)
        busy = BUSY_S if site.emulated else 0.0
        assert told < TOLD_S + busy, f"{what}: told after {told:.2f} s\n{job.transcript()}"
        assert released < RELEASED_S + busy, (
            f"{what}: streams went on after {released:.2f} s\n{job.transcript()}"
        )
        if not nodes.cluster.nodes[1].running():
            nodes.cluster.restart(nodes.cluster.nodes[1])
        expect_success(nodes.start("next_job.py", [1, 1]), NEXT_JOB_S)
    return (
        f"{what}: ended {(ended - begin) * 1e3:.0f} ms after SIGKILL, told {told * 1e3:.0f} ms after that, "
        f"streams went on {released * 1e3:.0f} ms after that end"
    )


def _await_end(what: str, pid: int) -> float:
    """When a process that was killed has ended. The kernel takes its GPU from it first, and tells
    nobody of its end before."""
    deadline = time.monotonic() + END_S
    while not has_ended(pid):
        assert time.monotonic() < deadline, f"{what}: pid {pid} has not ended within {END_S:.0f} s"
        time.sleep(0.002)
    return time.monotonic()
