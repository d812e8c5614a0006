"""The order of things: quiet, then an attack with everything else under way, then a look at what is
left; and again."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.soak import step_times
from tests.soak.attacks import Attack
from tests.soak.chaos import Chaos
from tests.soak.jobs import JobPlan
from tests.soak.journal import Finding, Journal
from tests.soak.leaks import Holdings, holdings, leaks
from tests.soak.newcomers import Newcomers
from tests.soak.records import Step, job_steps
from tests.soak.step_times import Distribution
from tests.soak.users import TRAINERS
from tests.soak.world import FAILING, FIRST, SECOND, STEADY_RANKS, World, wait_for

QUIET_S = 2.0
ATTACK_S = 4.0
#: For ringd to let go of what has ended. A leak stays; forty engines that end on a machine where
#: each thread waits a tenth of a second for each turn do not.
SETTLE_S = 40.0
#: What takes longer is noted.
NOTED_SETTLE_S = 5.0
#: Without a step for so long a steady job stands still.
STANDSTILL_S = 5.0
#: Steps until plans are learned, line speeds known, and so on.
WARM_STEPS = 60


@dataclass
class LaneResult:
    """What an attack came to."""

    name: str
    seconds: float = 0.0
    events: int = 0
    newcomers: int = 0
    slowest_newcomer_s: float = 0.0
    #: By job: undisturbed, attacked.
    steps: dict[str, tuple[Distribution, Distribution]] = field(default_factory=dict)


class Soak:
    """One run. Worlds that an attack has broken are replaced, so that each attack is judged for
    itself."""

    def __init__(
        self, attacks: Sequence[Attack], seed: int, journal: Journal, hold: str | None = None
    ) -> None:
        """`hold`: when such a promise is broken everything stays as it is, until an interrupt."""
        self._attacks = list(attacks)
        self._chance = random.Random(seed)
        self._journal = journal
        self._hold = hold
        self._world: World | None = None
        self._before: dict[str, Holdings] = {}
        self._quiet: list[tuple[int, int]] = []
        self.results: list[LaneResult] = []
        self.holdings: dict[str, dict[str, object]] = {}

    @property
    def findings(self) -> list[Finding]:
        return self._journal.findings

    def run(self, minutes: float | None) -> None:
        """All attacks once, or again and again for so long."""
        deadline = None if minutes is None else time.monotonic() + 60 * minutes
        try:
            while True:
                for attack in self._chance.sample(self._attacks, len(self._attacks)):
                    self._lane(attack)
                    if deadline is not None and time.monotonic() > deadline:
                        break
                if deadline is None or time.monotonic() > deadline:
                    break
            self._journal.lane = "end"
            self._finish()
        finally:
            self.close()

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None

    # ---- one attack ------------------------------------------------------------------------------

    def _lane(self, attack: Attack) -> None:
        self._journal.lane = "start"
        world = self._world or self._new_world()
        self._journal.lane = attack.name
        result = LaneResult(attack.name)
        self.results.append(result)
        if world is None:
            self._journal.find("attack", "it was not made: nothing to attack")
            return
        began = time.monotonic()
        self._stay_quiet(QUIET_S)
        known = len(self.findings)
        begin_ns = time.monotonic_ns()
        self._journal.note(f"begins: {attack.tries}")
        newcomers = Newcomers(world, self._journal)
        with contextlib.closing(newcomers):
            chance = random.Random(self._chance.random())
            chaos = Chaos(world, self._journal, chance, attack.shares_failing_node)
            with contextlib.closing(chaos):
                try:
                    attack.make(world, self._journal, random.Random(self._chance.random()), ATTACK_S)
                except Exception as error:
                    # The attack is over, and what it has done is still to be judged.
                    self._journal.find("attack", f"{type(error).__name__}: {error}")
        healthy = self._judge(world, begin_ns, result)
        result.events, result.newcomers = chaos.done, newcomers.count
        result.slowest_newcomer_s = newcomers.slowest_s
        result.seconds = time.monotonic() - began
        if len(self.findings) > known:
            # Whatever is wrong now must not be found again, in the next attack's name.
            healthy = False
            heard = self._heard(world) or ["nothing"]
            self._journal.note("\n    ".join(["what the steady jobs heard:", *heard]))
            if any(finding.what == self._hold for finding in self.findings[known:]):
                pids = ", ".join(f"{node} {node.pid}" for node in world.nodes.values())
                self._journal.note(f"stays as it is until Ctrl-C: {world.folder}, {pids}")
                signal.pause()
        if not healthy:
            self._journal.note("the rest goes on with everything new")
            self.close()

    def _new_world(self) -> World | None:
        """Everything that runs, warmed up; None if something of it has ended meanwhile."""
        self._world = world = World()
        self._quiet = []
        ready = wait_for(lambda: all(len(job.steps()) >= WARM_STEPS for job in world.steady), 60)
        if not ready:
            self._journal.find("steps", "\n".join(["the steady jobs do not get going", *self._heard(world)]))
        # What is made at first use, such as connections to a neighbour, is no leak.
        for places in ((FIRST, FAILING), (FAILING, SECOND), (FIRST, FIRST, SECOND)):
            job = world.start_job(JobPlan("warm", TRAINERS[0], places), {"SOAK_STEPS": "20"})
            job.await_event("done", 20)
            world.forget(job)
        with (
            contextlib.closing(Chaos(world, self._journal, random.Random(0), node_events=False)),
            contextlib.closing(Newcomers(world, self._journal)),
        ):
            time.sleep(1.0)
        if not self._sessions_are_back(world):
            self._ringds_live(world)
            self._journal.find("leaks", "\n".join(["the first jobs have not gone", *self._heard(world)]))
            self.close()
            return None
        if not wait_for(world.engines_stand_ready, SETTLE_S):
            self._journal.find("ringd", "the engines that stand ready have not been replaced")
        self._before = self._holdings(world)
        return world

    def _stay_quiet(self, seconds: float) -> None:
        begin_ns = time.monotonic_ns()
        time.sleep(seconds)
        self._quiet.append((begin_ns, time.monotonic_ns()))

    # ---- judging ---------------------------------------------------------------------------------

    def _judge(self, world: World, begin_ns: int, result: LaneResult) -> bool:
        """Whether this world can go on."""
        end_ns = time.monotonic_ns()
        moving = wait_for(lambda: all(job.last_end_ns() > end_ns for job in world.steady), STANDSTILL_S)
        for job in world.steady:
            if job.last_end_ns() <= end_ns:
                still = (time.monotonic_ns() - job.last_end_ns()) / 1e9
                self._journal.find("steps", f"{job} has stood still for {still:.1f} s")
            for rank in job.ranks:
                if not rank.running():
                    self._journal.find("steps", f"{job}: {rank} has ended")
        alive = self._ringds_live(world)
        if world.processors is not None and not world.processors.running():
            self._journal.find("soak", "soak_processors has ended")
        if not moving or not alive:
            return False
        self._judge_steps(world, begin_ns, end_ns, result)
        return self._judge_leaks(world)

    def _ringds_live(self, world: World) -> bool:
        dead = [node for node in world.nodes.values() if not node.running()]
        for node in dead:
            tail = "\n".join(node.output.splitlines()[-40:])
            self._journal.find("ringd", f"{node} has ended with {node.process.returncode}:\n{tail}")
        return not dead

    def _judge_steps(self, world: World, begin_ns: int, end_ns: int, result: LaneResult) -> None:
        assert world.processors is not None
        time.sleep(0.05)
        world.processors.read()
        control = self._compare(None, job_steps([world.control]), world, begin_ns, end_ns)
        if control is None:
            return
        result.steps["control"] = control
        control_s = control[1].slowest - control[0].slowest
        for job in world.steady:
            name = job.plan.name
            both = self._compare(name, job.steps(), world, begin_ns, end_ns)
            if both is None:
                continue
            result.steps[name] = both
            attacked = [change for change in job.changes() if change.overlaps(begin_ns, end_ns)]
            for complaint in (
                step_times.complaint(*both, control_s),
                step_times.slow_change(attacked, world.processors, name),
            ):
                if complaint is not None:
                    self._journal.find("steps", f"{job}: {complaint}")

    def _compare(
        self, job: str | None, steps: list[Step], world: World, begin_ns: int, end_ns: int
    ) -> tuple[Distribution, Distribution] | None:
        """Undisturbed and attacked; None, and a finding, if there are no such steps. No job: the
        control's."""
        assert world.processors is not None
        quiet = [
            step
            for step in steps
            if any(begin <= step.begin_ns and step.end_ns <= end for begin, end in self._quiet)
        ]
        attacked = [step for step in steps if step.overlaps(begin_ns, end_ns)]
        if not quiet or not attacked:
            self._journal.find(
                "steps", f"{job or 'control'}: {len(quiet)} quiet steps, {len(attacked)} attacked"
            )
            return None
        return (
            step_times.distribution(quiet, world.processors, job),
            step_times.distribution(attacked, world.processors, job),
        )

    def _sessions_are_back(self, world: World) -> bool:
        """Whether the steady jobs' sessions are the only ones again."""

        def sessions() -> int:
            try:
                counts = [
                    world.ringctl(number, "root", "status")["sessions"] for number in (FIRST, SECOND, FAILING)
                ]
            except (AssertionError, KeyError):
                return -1
            return sum(counts)

        return wait_for(lambda: sessions() == STEADY_RANKS, SETTLE_S)

    def _judge_leaks(self, world: World) -> bool:
        if not self._sessions_are_back(world):
            self._journal.find("leaks", f"not {STEADY_RANKS} sessions {SETTLE_S:.0f} s after the attack")
            self._tell_jobs(world)
            return False

        def found() -> list[str]:
            after = self._holdings(world)
            return [
                f"{name} has {leak}"
                for name, before in self._before.items()
                for leak in leaks(before, after[name])
            ]

        began = time.monotonic()
        if wait_for(lambda: not found(), SETTLE_S):
            took = time.monotonic() - began
            if took > NOTED_SETTLE_S:
                self._journal.note(f"what had ended was let go of after {took:.0f} s")
            return True
        for leak in found():
            self._journal.find("leaks", leak)
        self._tell_jobs(world)
        return False

    def _tell_jobs(self, world: World) -> None:
        """Which jobs there are, and what the logs have of those that should have gone."""
        steady = {job.plan.name for job in world.steady}
        for number in (FIRST, SECOND, FAILING):
            jobs = world.ringctl(number, "root", "jobs")["jobs"]
            names = ", ".join(f"{job['job_id']} ({job['state']})" for job in jobs)
            self._journal.note(f"jobs on node{number}: {names}")
            for job in jobs:
                if job["job_id"] in steady:
                    continue
                words = f" job={job['job_id']} "
                lines = [line for line in world.nodes[number].output.splitlines() if words in f"{line} "]
                self._journal.note("\n    ".join([json.dumps(job), *lines[-40:]]))

    @staticmethod
    def _holdings(world: World) -> dict[str, Holdings]:
        """Of the ringds that stay, and of the steady jobs' engines."""
        found = {
            str(world.nodes[number]): holdings(world.nodes[number].pid, world.state_folder(number))
            for number in (FIRST, SECOND)
        }
        for (job, number), pid in world.engines.items():
            found[f"the engine of {job} on node{number} (pid {pid})"] = holdings(pid)
        return found

    @staticmethod
    def _heard(world: World) -> list[str]:
        return [line for job in world.steady for line in job.heard()]

    # ---- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        """The steady jobs end well, then the ringds, and nothing is left."""
        world = self._world
        if world is None:
            return
        after = self._holdings(world)
        for name, before in self._before.items():
            self.holdings[f"{name} before"] = before.as_dict()
            self.holdings[f"{name} after"] = after[name].as_dict()
        world.stop_file.touch()
        for job in world.steady:
            job.await_event("done", 20)
            codes = [None if rank.running() else rank.process.returncode for rank in job.ranks]
            if any(codes) or None in codes:
                time.sleep(2)
                codes = [rank.process.poll() for rank in job.ranks]
            if codes != [0] * len(codes):
                self._journal.find("steps", "\n".join([f"{job} ended with {codes}", *job.heard()]))
        for node in world.nodes.values():
            code = node.terminate()
            if code != 0:
                self._journal.find("ringd", f"{node} ended with {code}")
            if node.socket.exists():
                self._journal.find("leaks", f"{node.socket} is left")
        self._journal.note("all ringds have ended")
