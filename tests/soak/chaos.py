"""Jobs that are started to be hurt: ranks killed, stopped, ended with a code; engines killed; the
node that fails, cut off and killed.

Each is one after the other, by the seed. Whoever survives has to hear the right thing in time.
"""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import threading
import time
from collections.abc import Callable

from tests.integration.engines import engine_on
from tests.soak import deaths, users
from tests.soak.jobs import JobPlan, SoakJob, SoakRank, resume, stop
from tests.soak.journal import Journal
from tests.soak.world import FAILING, FIRST, SECOND, World

#: Layouts of jobs on the nodes that stay.
LAYOUTS = ((FIRST,) * 3, (SECOND,) * 2, (FIRST, FIRST, SECOND), (FIRST, SECOND), (SECOND, FIRST))
WITH_FAILING = ((FIRST, FAILING), (FIRST, FIRST, FAILING), (FAILING, FIRST))
START_S = 15.0
#: A node that is silent is given up after about 3 s.
NODE_GONE_S = 6.0
EXIT_CODE = 7

_numbers = itertools.count(1)


class Chaos:
    """Runs on a thread of its own until it is told to stop; the event under way is finished
    first."""

    def __init__(self, world: World, journal: Journal, chance: random.Random, node_events: bool) -> None:
        self._world = world
        self._journal = journal
        self._chance = chance
        self._stop = threading.Event()
        self._events: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._kill_engine,
            self._exit,
            self._pause,
        ]
        if node_events:
            self._events += [self._blink, self._cut, self._kill_ringd]
        self.done = 0
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 60.0) -> None:
        """After the event under way."""
        self._stop.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._journal.find("chaos", f"an event did not end within {timeout_s} s")

    def _run(self) -> None:
        deck: list[Callable[[], None]] = []
        while not self._stop.is_set():
            if not deck:
                deck = self._chance.sample(self._events, len(self._events))
            event = deck.pop()
            try:
                event()
            except Exception as error:  # The other events are still worth it.
                self._journal.find("chaos", f"{event.__name__}: {type(error).__name__}: {error}")
            self.done += 1

    # ---- events ----------------------------------------------------------------------------------

    def _kill(self) -> None:
        job = self._start(LAYOUTS)
        if job is None:
            return
        victim = self._chance.choice(job.ranks)
        number = self._chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
        self._note(f"signal {number.value} to {victim} of {job}")
        at = time.monotonic()
        os.kill(victim.pid, number)
        self._expect_named(job, victim, at)

    def _kill_engine(self) -> None:
        job = self._start(LAYOUTS)
        if job is None:
            return
        rank = self._chance.choice(job.ranks)
        node = self._world.nodes[rank.node]
        pid = engine_on(node, rank)
        self._note(f"the engine of {job} (pid {pid} on {node.name}) is killed")
        at = _kill_until_ended(pid)
        errors = job.await_event("error", deaths.WITHIN_S + 4)
        said = f"the engine of job '{job.plan.name}' (pid {pid} on {node.name}) was killed by signal 9"
        excused_s = self._stood_still_s(at)
        for told, error in zip(job.ranks, errors, strict=True):
            if error is None or said not in error["text"]:
                heard = "nothing" if error is None else error["text"]
                self._journal.find("deaths", f"{job}: {told} heard of its engine's end: {heard}")
            elif error["at"] - at - excused_s > deaths.WITHIN_S:
                late = error["at"] - at
                self._journal.find("deaths", f"{job}: {told} heard of its engine's end after {late:.2f} s")
        self._expect_sums(job)
        self._world.forget(job)

    def _exit(self) -> None:
        places = self._chance.choice(LAYOUTS)
        plan = JobPlan(f"exits-{next(_numbers)}", self._chance.choice(users.TRAINERS), places)
        victim = self._chance.randrange(len(places))
        steps = self._chance.randrange(5, 20)
        environment = {"SOAK_EXIT": f"rank {victim} after {steps} with {EXIT_CODE}", "SOAK_PERIOD": "5"}
        job = self._world.start_job(plan, environment)
        ended = job.ranks[victim]
        self._note(f"{ended} of {job} exits with code {EXIT_CODE} after {steps} steps")
        if not job.begins(START_S):
            self._journal.find("newcomers", "\n".join([f"{job} did not begin", *job.heard()]))
            self._world.forget(job)
            return
        deadline = time.monotonic() + START_S
        while ended.running() and time.monotonic() < deadline:
            time.sleep(0.002)
        self._expect_named(job, ended, time.monotonic())

    def _pause(self) -> None:
        job = self._start(LAYOUTS)
        if job is None:
            return
        paused = self._chance.choice(job.ranks)
        seconds = self._chance.uniform(0.1, 0.8)
        self._note(f"{paused} of {job} is stopped for {seconds:.1f} s")
        stop(paused.pid)
        time.sleep(seconds)
        resume(paused.pid)
        self._expect_progress(job)

    def _blink(self) -> None:
        assert self._world.network is not None
        job = self._start(WITH_FAILING)
        if job is None:
            return
        seconds = self._chance.uniform(0.1, 0.5)
        self._note(f"the line to node{FAILING} is cut for {seconds:.1f} s")
        self._world.network.cut(FAILING)
        time.sleep(seconds)
        self._world.network.mend(FAILING)
        self._expect_progress(job)

    def _cut(self) -> None:
        assert self._world.network is not None
        job = self._start(WITH_FAILING)
        if job is None:
            return
        self._note(f"the line to node{FAILING} is cut")
        self._world.network.cut(FAILING)
        at = time.monotonic()
        try:
            self._expect_told_of_node(job, job.ranks, at)
        finally:
            self._world.network.mend(FAILING)
            self._world.forget(job)

    def _kill_ringd(self) -> None:
        job = self._start(WITH_FAILING)
        if job is None:
            return
        node = self._world.nodes[FAILING]
        self._note(f"{node} is killed")
        at = time.monotonic()
        node.kill()
        self._expect_told_of_node(job, job.ranks, at)
        self._world.forget(job)
        self._world.start_node(FAILING)

    # ---- what is expected ------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        self._journal.note(text)

    def _start(self, layouts: tuple[tuple[int, ...], ...]) -> SoakJob | None:
        """A job that works; None if it does not, which is told."""
        user = self._chance.choice(users.TRAINERS)
        plan = JobPlan(f"hurt-{next(_numbers)}", user, self._chance.choice(layouts))
        job = self._world.start_job(plan, {"SOAK_PERIOD": "5"})
        if job.begins(START_S):
            time.sleep(self._chance.uniform(0.05, 0.3))
            return job
        self._journal.find("newcomers", "\n".join([f"{job} did not begin", *job.heard()]))
        self._world.forget(job)
        return None

    def _expect_named(self, job: SoakJob, victim: SoakRank, at: float) -> None:
        """Every other rank hears who died, and how."""
        code = victim.wait(5)
        survivors = [rank for rank in job.ranks if rank is not victim]
        errors = job.await_event("error", deaths.WITHIN_S + 4, survivors)
        death = deaths.Death(victim.number, victim.pid, code, at, self._stood_still_s(at))
        for complaint in deaths.complaints(death, survivors, errors):
            self._journal.find("deaths", f"{job}: {complaint}")
        self._expect_sums(job)
        self._world.forget(job)

    def _stood_still_s(self, at: float) -> float:
        """For how long a processor ran nobody since then."""
        assert self._world.processors is not None
        self._world.processors.read()
        return self._world.processors.longest_gap_ns(int(at * 1e9), time.monotonic_ns()) / 1e9

    def _expect_told_of_node(self, job: SoakJob, ranks: list[SoakRank], at: float) -> None:
        """Every rank hears that a node has gone: those of that node of their own ringd."""
        errors = job.await_event("error", NODE_GONE_S + 4, ranks)
        for rank, error in zip(ranks, errors, strict=True):
            if error is None:
                self._journal.find("deaths", f"{job}: {rank} did not hear of node{FAILING}'s end")
            elif error["at"] - at > NODE_GONE_S:
                late = error["at"] - at
                self._journal.find("deaths", f"{job}: {rank} heard of node{FAILING}'s end after {late:.1f} s")
            elif not any(f"node{number}" in error["text"] for number in {FAILING, *job.plan.places}):
                self._journal.find("deaths", f"{job}: {rank}: the error names no node: {error['text']}")
        self._expect_sums(job)

    def _expect_progress(self, job: SoakJob) -> None:
        """It goes on, and has lost nothing."""
        before = job.last_end_ns()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and job.last_end_ns() <= before:
            time.sleep(0.02)
        if job.last_end_ns() <= before or not all(rank.running() for rank in job.ranks):
            self._journal.find("chaos", "\n".join([f"{job} did not go on", *job.heard()]))
        self._expect_sums(job)
        self._world.forget(job)

    def _expect_sums(self, job: SoakJob) -> None:
        for rank in job.ranks:
            wrong = rank.record.find("wrong sum")
            if wrong is not None:
                self._journal.find("sums", f"{job}: {rank}: {wrong['text']}")


def _kill_until_ended(pid: int) -> float:
    """When it had ended: on a busy machine a process with many threads takes its time."""
    with open(os.pidfd_open(pid), "rb", closefd=True) as process:
        os.kill(pid, signal.SIGKILL)
        select.select([process], [], [], 10.0)
    return time.monotonic()
