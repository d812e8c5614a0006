"""Attacks on the node that fails, done from outside: its engine or ringd hangs, its interface has
no carrier."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from tests.integration.engines import engine_on
from tests.soak import users
from tests.soak.jobs import JobPlan, SoakJob, resume, stop
from tests.soak.journal import Journal
from tests.soak.world import FAILING, FIRST, World, rest, wait_for

#: Within this time ranks hear of an engine that hangs. What is added is for a busy machine: an
#: engine that got no processor for a while grants others their time once more.
HANGING_S = 5.0 + 3.0


@contextlib.contextmanager
def _job_of_the_failing_node(world: World, journal: Journal) -> Iterator[SoakJob | None]:
    """One that works; None, and a finding, if it did not begin."""
    job = world.start_job(JobPlan("hung", users.TRAINERS[0], (FIRST, FAILING, FAILING)), {})
    try:
        if job.begins(15):
            yield job
        else:
            journal.find("newcomers", "\n".join([f"{job} did not begin", *job.heard()]))
            yield None
    finally:
        world.forget(job)
    _expect_service(world, journal)


def hang_engine(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """An engine on the node that fails is stopped: its ranks, and those of the other node, hear of
    it."""
    with _job_of_the_failing_node(world, journal) as job:
        if job is None:
            return
        engine = engine_on(world.nodes[FAILING], job.ranks[1])
        journal.note(f"the engine of {job} (pid {engine}) is stopped")
        at = _stop_for_long(engine)
        # Those whose own engine it is name it; the others hear of its node.
        _expect_told(job, FAILING, (f"pid {engine}",), at, journal)
        _expect_told(job, FIRST, (f"node{FAILING}", "rank 1"), at, journal)


def _stop_for_long(pid: int) -> float:
    """When it was stopped; afterwards it goes on."""
    at = time.monotonic()
    stop(pid)
    try:
        time.sleep(HANGING_S)
    finally:
        resume(pid)
    return at


def _expect_told(job: SoakJob, node: int, names: tuple[str, ...], at: float, journal: Journal) -> None:
    """All ranks of that node have heard one of these names within HANGING_S."""
    for rank in job.ranks:
        if rank.node != node:
            continue
        told = [said for said in rank.record.read().events if said["event"] in ("warning", "error")]
        in_time = [said["text"] for said in told if said["at"] - at <= HANGING_S]
        if not any(name in text for text in in_time for name in names):
            journal.find("deaths", f"{job}: {rank} has not heard what hangs: {told}")


def hang_ringd(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """The ringd of the node that fails is stopped: a job that has an engine goes on until a rank
    calls ringd, which a rank does that makes a communicator. It hears why it waits, and goes on
    when ringd does."""
    with _job_of_the_failing_node(world, journal) as job:
        if job is None:
            return
        node = world.nodes[FAILING]
        journal.note(f"{node} is stopped")
        at = _stop_for_long(node.pid)
        _expect_told(job, FAILING, (f"pid {node.pid}",), at, journal)
        resumed = time.monotonic_ns()
        if not wait_for(lambda: job.last_end_ns() > resumed, 5):
            journal.find("steps", "\n".join([f"{job} does not go on with its ringd", *job.heard()]))


def no_carrier(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """The node that fails starts its ringd while its interface has no carrier yet."""
    assert world.network is not None
    began = time.monotonic()
    world.nodes[FAILING].terminate()
    world.network.unplug(FAILING)
    try:
        world.start_node(FAILING, wait=False)
        time.sleep(1.0)
    finally:
        world.network.plug(FAILING)
    world.nodes[FAILING].wait_until_ready()
    journal.note(f"{world.nodes[FAILING]} was started without a carrier")
    _expect_service(world, journal)
    rest(began, seconds)


def _expect_service(world: World, journal: Journal) -> None:
    """Jobs that need the node that fails can be run."""
    plan = JobPlan("after", users.TRAINERS[1], (FAILING, FIRST))
    job = world.start_job(plan, {"SOAK_STEPS": "5", "SOAK_PERIOD": "1"})
    if not all(job.await_event("done", 20)):
        journal.find("newcomers", "\n".join([f"{job} could not be run", *job.heard()]))
    world.forget(job)
