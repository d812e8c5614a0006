"""The attacks, each with the name of what it tries. A later one is added to ALL, here or in
attackers/."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.soak import deaths, failing_node, users
from tests.soak.jobs import JobPlan, SoakJob, SoakRank, resume, stop
from tests.soak.journal import Journal
from tests.soak.world import FAILING, FIRST, SECOND, STEADY, World, rest, wait_for

#: Of a user on a node.
MOST_COMMUNICATORS = 1024


@dataclass(frozen=True)
class Attack:
    """`make` blocks for as long as the attack goes on, at least until `seconds` have passed."""

    name: str
    tries: str
    make: Callable[[World, Journal, random.Random, float], None]
    #: Whether events that need the node that fails may go on beside it.
    shares_failing_node: bool = True


def _expect_report(job: SoakJob, journal: Journal) -> None:
    """Every process has to say what it has come to: an attack that is not made proves nothing."""
    for rank in job.ranks:
        said = [line for line in rank.record.read().other if line.startswith("did: ")]
        for line in said:
            journal.note(f"{rank}: {line.removeprefix('did: ')}")
        if not said:
            words = " / ".join([*rank.record.other[-3:], f"code {rank.process.returncode}"])
            journal.find("attack", f"{job.plan.name}: {rank} has not said what it did: {words}")


def _end(world: World, journal: Journal, jobs: list[SoakJob], seconds: float) -> None:
    """Lets the attackers come to their own end, which is soon, and reads what they did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(rank.running() for job in jobs for rank in job.ranks):
        time.sleep(0.05)
    for job in jobs:
        job.end()
        _expect_report(job, journal)
        world.forget(job)


def _await_end(rank: SoakRank, seconds: float) -> None:
    wait_for(lambda: not rank.running(), seconds)


def _goes_on(job: SoakJob) -> bool:
    """Whether it does another step soon."""
    last_ns = job.last_end_ns()
    return wait_for(lambda: job.last_end_ns() > last_ns, 5.0)


def _by_program(program: str, places: tuple[int, ...] | None = None) -> Callable[..., None]:
    """By attackers/: as ranks of a job of the hostile user's own, or as a process that is told only
    the socket.

    The latter are floods, whose processes give way to others: how users share processors is the
    kernel's business.
    """

    def make(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
        nice = "0" if places else "5"
        command = ["soak_attacker", program, str(seconds), str(chance.randrange(1 << 32)), nice]
        plan = JobPlan(f"hostile-{program}", users.HOSTILE, places or (FIRST,))
        job = world.start_job(plan, {}, command)
        # What is closed when they are killed is closed by the kernel: a process that hangs on must
        # not.
        _end(world, journal, [job], seconds + 3)

    return make


def _rubbish(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """One rank of each job writes rubbish; the other ranks are honest, and may only hear of an
    error."""
    hostile = ["soak_attacker", "rubbish-writer", str(seconds), str(chance.randrange(1 << 32)), "5"]
    for places in ((FIRST, FIRST), (FIRST, SECOND)):
        plan = JobPlan(f"rubbish-{len(set(places))}", users.HOSTILE, places)
        _mixed(world, journal, plan, hostile, seconds / 2)


def _mixed(world: World, journal: Journal, plan: JobPlan, hostile: list[str], seconds: float) -> None:
    writer = world.start_job(plan, {}, hostile, only=(len(plan.places) - 1,))
    honest = world.start_job(plan, {"SOAK_PERIOD": "5"}, only=(0,))
    time.sleep(seconds)
    # A wrong sum is what the members of one job may do to each other.
    honest.end()
    world.forget(honest)
    _end(world, journal, [writer], seconds + 3)


def _flood_traces(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """The hostile user has many jobs traced, on two nodes; the others' traces come, and are
    whole."""
    began = time.monotonic()
    seed = str(chance.randrange(1 << 32))
    flood = ["soak_attacker", "trace-flood", str(seconds), seed, "5"]
    job = world.start_job(JobPlan("hostile-trace-flood", users.HOSTILE, (FIRST, SECOND)), {}, flood)
    folder = world.folder / "traces"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    # Until its jobs are there.
    time.sleep(1.0)
    count = 0
    while time.monotonic() < began + seconds - 1.0:
        steady = chance.choice(STEADY)
        node = chance.choice(steady.places)
        out = folder / f"{steady.name}-{count}.json"
        arguments = ("trace", "--job", steady.name, "--seconds", "0.3", "--out", str(out))
        summary = world.ringctl(node, steady.user, *arguments)
        for warning in summary["warnings"]:
            journal.find("newcomers", f"the trace of {steady.name}, asked for on node{node}: {warning}")
        count += 1
    journal.note(f"{count} traces of the steady jobs were written meanwhile")
    _end(world, journal, [job], seconds + 3)


def _keep_descriptors(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """One rank of each job ends, and leaves all that it had open to a process that writes
    rubbish."""
    began = time.monotonic()
    for places in ((FIRST, FIRST), (FIRST, SECOND)):
        plan = JobPlan(f"kept-{len(set(places))}", users.HOSTILE, places)
        keeper_seed = str(chance.randrange(1 << 32))
        command = ["soak_attacker", "descriptor-keeper", str(seconds), keeper_seed, "5"]
        keeper = world.start_job(plan, {}, command, only=(1,))
        honest = world.start_job(plan, {"SOAK_PERIOD": "5"}, only=(0,))
        _await_end(keeper.ranks[0], seconds)
        # Before the process that was left behind does anything.
        if honest.await_event("error", deaths.WITHIN_S) == [None]:
            journal.find("deaths", f"{honest} has not heard that its other rank has ended")
        honest.end()
        world.forget(honest)
        _end(world, journal, [keeper], 1)
    rest(began, seconds)


def _stop_and_go(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """Ranks of the hostile user's jobs are stopped at any moment, go on, and are stopped again."""
    began = time.monotonic()
    layouts = ((FIRST, FIRST), (FIRST, SECOND), (SECOND, FIRST, FIRST))
    plans = [JobPlan(f"halting-{number}", users.HOSTILE, places) for number, places in enumerate(layouts)]
    jobs = [world.start_job(plan, {"SOAK_PERIOD": "1"}) for plan in plans]
    ranks = [rank for job in jobs for rank in job.ranks]
    count = 0
    while time.monotonic() < began + seconds:
        stopped = chance.sample(ranks, chance.randrange(1, len(ranks)))
        for rank in stopped:
            stop(rank.pid)
        time.sleep(chance.choice([0.001, 0.01, 0.05, 0.4]))
        for rank in stopped:
            resume(rank.pid)
        time.sleep(chance.choice([0.0, 0.002, 0.02]))
        count += len(stopped)
    journal.note(f"ranks were stopped {count} times")
    for job in jobs:
        if not _goes_on(job):
            journal.find("chaos", "\n".join([f"{job} did not go on", *job.heard()]))
        world.forget(job)


def _hoard_communicators(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """On two nodes; ringd makes no more than it says that a user may have on a node."""
    command = ["soak_attacker", "communicator-hoarder", str(seconds), str(chance.randrange(1 << 32)), "5"]
    job = world.start_job(JobPlan("hostile-hoarder", users.HOSTILE, (FIRST, SECOND)), {}, command)
    _end(world, journal, [job], seconds + 3)
    for rank in job.ranks:
        for line in rank.record.other:
            made = re.match(r"did: (\d+) communicators of two nodes flooded, (\d+) more made", line)
            if made and int(made[1]) + int(made[2]) > MOST_COMMUNICATORS:
                journal.find("attack", f"{rank} had more communicators than {MOST_COMMUNICATORS}: {line}")


def _look_at_others(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """The hostile user asks for lists; root has to see what he must not."""
    began = time.monotonic()
    pids = {rank.pid for job in world.steady for rank in job.ranks}
    names = {plan.name for plan in STEADY}
    for command in ("jobs", "comms", "queues"):
        answer = str(world.ringctl(FIRST, users.HOSTILE, command))
        seen = sorted(name for name in names if name in answer)
        seen += sorted(f"pid {pid}" for pid in pids if f"'pid': {pid}," in answer)
        if seen:
            journal.find("privacy", f"{users.HOSTILE} sees by ringctl {command}: {', '.join(seen)}")
        if not any(name in str(world.ringctl(FIRST, users.ROOT, command)) for name in names):
            journal.find("privacy", f"root sees no job by ringctl {command}")
    own = str(world.ringctl(FIRST, users.TRAINERS[0], "jobs"))
    if not any(plan.name in own for plan in STEADY if plan.user == users.TRAINERS[0]):
        journal.find("privacy", f"{users.TRAINERS[0]} does not see his own jobs")
    journal.note("three lists were asked for")
    rest(began, seconds)


def _wrong_secret(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """Other processes of a trainer's user name his job, with a wrong secret and another size or
    weight."""
    began = time.monotonic()
    count = 0
    while time.monotonic() < began + seconds:
        steady = chance.choice(STEADY)
        places = chance.choice([(FIRST,), (FIRST, SECOND), (FIRST, FIRST, SECOND), steady.places])
        plan = JobPlan(steady.name, steady.user, places, secret="guessed")
        only = (chance.randrange(len(places)),)
        job = world.start_job(plan, {"RINGD_WEIGHT": str(chance.randrange(1, 9))}, only=only)
        time.sleep(chance.uniform(0.2, 0.6))
        world.forget(job)
        count += 1
    journal.note(f"{count} processes named the steady jobs")


def _door_crowd(world: World, journal: Journal, chance: random.Random, seconds: float) -> None:
    """Strangers at the doors, as another user of the node and from another namespace."""
    crowds = [world.start_stranger(node, "door_crowd.py", seconds, chance) for node in (FIRST, FAILING)]
    deadline = time.monotonic() + seconds + 10
    while time.monotonic() < deadline and any(crowd.running() for crowd in crowds):
        time.sleep(0.05)
    for crowd in crowds:
        crowd.send(signal.SIGKILL)
        said = [line for line in crowd.output.splitlines() if line.startswith("did: ")]
        journal.note(f"strangers: {' / '.join(said)}")
        if not said:
            words = f"{crowd.output[-500:]} / code {crowd.process.poll()}"
            journal.find("attack", f"a stranger has not said what it did: {words}")


ALL = (
    Attack("none", "nothing: only kills, stops and cuts", lambda w, j, c, seconds: time.sleep(seconds)),
    Attack(
        "engine-blocker",
        "the engine sleeps in write or read: a shared eventfd without O_NONBLOCK, kept full",
        _by_program("engine-blocker", (FIRST, SECOND)),
    ),
    Attack(
        "lingerer",
        "the engine sleeps in close: a shared socket with ten minutes of SO_LINGER, full, an accomplice "
        "who doesn't read",
        _by_program("lingerer", (FIRST, SECOND)),
    ),
    Attack(
        "descriptor-keeper",
        "a rank that has ended seems to live: another process keeps its connections and memory",
        _keep_descriptors,
    ),
    Attack(
        "stop-and-go",
        "ringd waits for ranks of others that are stopped at the worst moment, and go on",
        _stop_and_go,
    ),
    Attack("stream-hoarder", "no thread is left for others: 400 open streams", _by_program("stream-hoarder")),
    Attack("name-hoarder", "the engine is busy: 48 ranks with 20,000 names", _by_program("name-hoarder")),
    Attack(
        "registration-flood",
        "the engine is busy: 65,535 descriptions in each call",
        _by_program("registration-flood"),
    ),
    Attack(
        "trace-flood",
        "the engine is busy: the traces of 40 jobs, again and again, each with all that rings can hold",
        _flood_traces,
    ),
    Attack(
        "communicator-hoarder",
        "memory, descriptors and the engine's time: communicators without end, flooded and abandoned",
        _hoard_communicators,
    ),
    Attack("session-hoarder", "no session is left for others", _by_program("session-hoarder")),
    Attack("list-reader", "others' jobs, pids and tensors are seen", _look_at_others),
    Attack("wrong-secret", "a job ends because somebody without its secret names it", _wrong_secret),
    Attack("rubbish-writer", "ringd believes what is in shared memory", _rubbish),
    Attack(
        "strange-handshakes",
        "ringd waits for, or trips over, connections that say nonsense or little at a time",
        _by_program("strange-handshakes"),
    ),
    Attack("half-attacher", "connections that stop half way use ringd up", _by_program("half-attacher")),
    Attack("door-crowd", "strangers use up the door, or ringd believes them", _door_crowd),
    Attack("connect-flood", "ringd only accepts connections", _by_program("connect-flood")),
    Attack(
        "hung-engine",
        "ranks wait for ever for an engine that hangs",
        failing_node.hang_engine,
        shares_failing_node=False,
    ),
    Attack(
        "hung-ringd",
        "ranks wait for ever for a ringd that hangs, or their job does not go on with it",
        failing_node.hang_ringd,
        shares_failing_node=False,
    ),
    Attack(
        "no-carrier",
        "a ringd that starts before the line is up never finds it",
        failing_node.no_carrier,
        shares_failing_node=False,
    ),
)


def named(name: str) -> Attack:
    """The attack of that name."""
    return next(attack for attack in ALL if attack.name == name)
