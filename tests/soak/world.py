"""Everything that runs: three ringds, each in its namespace and as a user of its own; four steady
jobs of two users."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.integration.cluster import Node
from tests.integration.engines import engine_on, engines_stand_ready
from tests.integration.processes import Child, clean_environment
from tests.soak import programs, users
from tests.soak.jobs import JobPlan, SoakJob, SoakRank
from tests.soak.network import Network
from tests.soak.processors import Processors
from tests.soak.records import Record

FIRST, SECOND, FAILING = 0, 1, 2
#: Each user has a job on one node and one over two; none is on the node that fails.
STEADY = (
    JobPlan("steady-games-one", users.TRAINERS[0], (FIRST, FIRST)),
    JobPlan("steady-games-two", users.TRAINERS[0], (FIRST, SECOND)),
    JobPlan("steady-news-one", users.TRAINERS[1], (SECOND, SECOND)),
    JobPlan("steady-news-two", users.TRAINERS[1], (FIRST, SECOND)),
)
STEADY_RANKS = sum(len(plan.places) for plan in STEADY)
SETTINGS: dict[str, object] = {
    "allowed_users": ",".join((*users.TRAINERS, users.HOSTILE)),
    "arena_bytes": "64MiB",
    "start_timeout": "20s",
    # Many jobs begin, each on nodes that it would have measured first.
    "measure_links": "false",
}
READY_S = 60.0


class World:
    """Ownership: owns its folder, network and processes; close() ends and removes all, whatever
    state they are in."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ringd-soak-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.nodes: dict[int, Node] = {}
        self.steady: list[SoakJob] = []
        self._jobs: list[SoakJob] = []
        self._numbers = itertools.count(1)
        self._ended_nodes: list[Node] = []
        self._control: list[Child] = []
        self.network: Network | None = None
        self.processors: Processors | None = None
        #: Of the steady jobs: pid by job and node.
        self.engines: dict[tuple[str, int], int] = {}
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self._bin = self.folder / "bin"
        programs.install(self._bin)
        self._nodes_folder = self.folder / "nodes"
        self._nodes_folder.mkdir(mode=0o755)
        entry = pwd.getpwnam(users.RINGD)
        os.chown(self._nodes_folder, entry.pw_uid, entry.pw_gid)
        (self.folder / "logs").mkdir(mode=0o755)
        self.network = Network()
        for number in (FIRST, SECOND, FAILING):
            self.start_node(number)
        self._start_control()
        self.stop_file = self.folder / "stop"
        for plan in STEADY:
            self.steady.append(self.start_job(plan, {"SOAK_STOP": str(self.stop_file)}))
        for job in self.steady:
            working = job.await_event("working", READY_S)
            assert all(working), "\n".join(job.heard())
        self.engines = {
            (job.plan.name, rank.node): engine_on(self.nodes[rank.node], rank)
            for job in self.steady
            for rank in job.ranks
        }
        ringds = [self.nodes[number].pid for number in (FIRST, SECOND)]
        self.processors = Processors(
            self._bin / "soak_processors", ringds, self.engines, self.folder / "logs" / "processors.log"
        )

    def _start_control(self) -> None:
        """The chain of programs/control.cc, its last link first; `control` has what the first one
        says."""
        assert self.network is not None
        here, there = self.network.address(FIRST), self.network.address(SECOND)
        links = [
            (SECOND, ["7003", "-", "0"]),
            (SECOND, ["7002", there, "7003"]),
            (FIRST, ["7001", there, "7002"]),
            (FIRST, ["0", here, "7001"]),
        ]
        for place, (node, arguments) in enumerate(links):
            log = self.folder / "logs" / f"control{place}.log"
            command = [*self.network.inside(node), *users.becoming(users.TRAINERS[0])]
            program = str(self._bin / "soak_control")
            self._control.append(Child([*command, program, *arguments], clean_environment(), log))
        self.control = Record(self._control[-1].log)

    # ---- nodes -----------------------------------------------------------------------------------

    def start_node(self, number: int, wait: bool = True) -> Node:
        """A ringd on that node, which has none."""
        assert self.network is not None
        name = f"node{number}"
        settings = SETTINGS | {"peer_address": f"{self.network.address(number)}:0"}
        inside = [*self.network.inside(number), *users.becoming(users.RINGD)]
        if number in self.nodes:
            self._keep_log(self.nodes[number])
        with _programs_in(self._bin):
            node = Node(name, self._nodes_folder, settings, inside)
        self.nodes[number] = node
        if wait:
            node.wait_until_ready()
        return node

    def _keep_log(self, ended: Node) -> None:
        kept = self.folder / "logs" / f"{ended.name}-{ended.pid}.log"
        with contextlib.suppress(FileNotFoundError):
            ended.log.rename(kept)
        ended.log = kept
        self._ended_nodes.append(ended)

    def engines_stand_ready(self) -> bool:
        """Of the ringds that stay."""
        return all(
            engines_stand_ready(self.nodes[number], sum(1 for _, node in self.engines if node == number))
            for number in (FIRST, SECOND)
        )

    def start_stranger(self, node: int, program: str, seconds: float, chance: random.Random) -> Child:
        """A Python program of programs/ on that node, as the hostile user: SECONDS SEED and the
        ringds' addresses."""
        assert self.network is not None
        source = self._bin / program
        # Once: another stranger may be about to read it.
        if not source.exists():
            shutil.copy(Path(__file__).with_name("programs") / program, source)
            source.chmod(0o755)
        log = self.folder / "logs" / f"stranger{next(self._numbers)}.log"
        command = [
            *self.network.inside(node),
            *users.becoming(users.HOSTILE),
            "/usr/bin/python3",
            str(source),
        ]
        addresses = [self.nodes[number].peer_address for number in (FIRST, SECOND)]
        arguments = [str(seconds), str(chance.randrange(1 << 32)), *addresses]
        return Child([*command, *arguments], clean_environment(), log)

    def state_folder(self, number: int) -> Path:
        return self._nodes_folder / f"node{number}.state"

    def ringctl(self, node: int, user: str, *arguments: str, timeout_s: float = 10) -> Any:
        """What ringctl answers this user, as JSON; an AssertionError says why it did not."""
        command = [*users.becoming(user), str(self._bin / "ringctl"), *arguments, "--json"]
        environment = clean_environment() | {"RINGD_SOCKET": str(self.nodes[node].socket)}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no answer to ringctl {' '.join(arguments)} in {timeout_s} s") from None
        assert done.returncode == 0, f"ringctl {' '.join(arguments)}: {(done.stdout + done.stderr).strip()}"
        return json.loads(done.stdout)

    # ---- jobs ------------------------------------------------------------------------------------

    def start_job(
        self,
        plan: JobPlan,
        environment: dict[str, str],
        command: list[str] | None = None,
        only: tuple[int, ...] | None = None,
    ) -> SoakJob:
        """A process for each rank, or for the ranks `only`: a trainer, or what `command` says."""
        number = next(self._numbers)
        ranks: list[SoakRank] = []
        job = SoakJob(plan, ranks)
        # Before its first process runs, so that none is forgotten.
        self._jobs.append(job)
        for rank in range(len(plan.places)) if only is None else only:
            log = self.folder / "logs" / f"{number}-{plan.name}-{rank}.log"
            ranks.append(self._start_rank(plan, rank, environment, command or ["soak_trainer"], log))
        return job

    def _start_rank(
        self, plan: JobPlan, rank: int, environment: dict[str, str], command: list[str], log: Path
    ) -> SoakRank:
        assert self.network is not None
        node = plan.places[rank]
        variables = (
            clean_environment()
            | {
                "RINGD_SOCKET": str(self.nodes[node].socket),
                "RINGD_RENDEZVOUS": self.nodes[plan.places[0]].peer_address,
                "RINGD_START_TIMEOUT": "20",
            }
            | plan.placement(rank)
            | environment
        )
        program = [str(self._bin / command[0]), *command[1:]]
        started = [*self.network.inside(node), *users.becoming(plan.user), *program]
        return SoakRank(rank, node, started, variables, log)

    def forget(self, job: SoakJob) -> None:
        """Ends what is left of a job that is no longer of interest, and removes its output."""
        job.end()
        self._jobs.remove(job)
        for rank in job.ranks:
            rank.log.unlink(missing_ok=True)

    # ---- the end ---------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """The pids of all ringds and trainers that ought to run."""
        return [node.pid for node in self.nodes.values()] + [
            rank.pid for job in self.steady for rank in job.ranks
        ]

    def close(self) -> None:
        for job in self._jobs:
            job.end()
        if self.processors is not None:
            self.processors.close()
        for child in (*self._control, *self.nodes.values(), *self._ended_nodes):
            child.destroy()
        if self.network is not None:
            self.network.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def _programs_in(folder: Path) -> Iterator[None]:
    """Node looks for ringd where this variable says."""
    before = os.environ.get("RINGD_BIN_DIR")
    os.environ["RINGD_BIN_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["RINGD_BIN_DIR"]
        if before is not None:
            os.environ["RINGD_BIN_DIR"] = before


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def rest(began: float, seconds: float) -> None:
    time.sleep(max(0.0, began + seconds - time.monotonic()))
