"""Real ringds as pretended nodes of this machine, and rank processes of jobs on them.

    def test_something(cluster: Cluster) -> None:
        cluster.start_nodes(2)
        job = cluster.start_job(PROGRAM, ranks_per_node=[1, 3])
        job.expect_success()

`PROGRAM` is Python source that each rank runs. Every process is ended, by its pid, when the test
ends, whatever happened; a ringd that ended by itself meanwhile fails the test, unless the test says
that it killed it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.processes import PATIENCE_S, Child, binary, clean_environment, python, wait_until

#: A user of nothing else, for ringd alone.
RINGD_UID = 54_321
# torchrun looks for dead ranks this often.
_REAP_INTERVAL_S = 0.1

_job_numbers = itertools.count(1)


class Node(Child):
    """One ringd; `inside` goes before its command, such as to run it in a network namespace."""

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: dict[str, object],
        inside: Sequence[str] = (),
        program: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.socket = folder / f"{name}.sock"
        self._ready_file = folder / f"{name}.ready"
        self._ready_file.unlink(missing_ok=True)
        self.peer_address = ""
        #: Set by a test that ends this ringd itself.
        self.may_end = False
        own = {
            "socket": self.socket,
            "node_name": name,
            "peer_address": "127.0.0.1:0",
            "state_dir": folder / f"{name}.state",
            "ready_file": self._ready_file,
            "cluster_key_file": _cluster_key_file(folder),
        }
        flags = [
            part
            for key, value in (own | settings).items()
            for part in (f"--{key.replace('_', '-')}", str(value))
        ]
        super().__init__(
            [*inside, program or binary("ringd"), *flags],
            clean_environment() | (environment or {}),
            folder / f"{name}.log",
        )

    def __str__(self) -> str:
        return f"ringd {self.name} (pid {self.pid})"

    def wait_until_ready(self) -> None:
        wait_until(lambda: self._ready_file.exists() or not self.running(), f"{self} serves")
        assert self.running(), f"{self} ended:\n{self.output}"
        self.peer_address = json.loads(self._ready_file.read_text())["peer_address"]

    def engines(self) -> set[int]:
        """The engines that this ringd has started and not reaped."""
        found = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                if name == "ringd-engine" and int(rest.split()[1]) == self.pid:
                    found.add(int(entry.name))
        return found

    def kill(self) -> None:
        """As a crash: at once and without a word."""
        self.may_end = True
        self.send(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.may_end = True
        self.send(signal.SIGTERM)
        return self.wait()


def _cluster_key_file(folder: Path) -> Path:
    """The key of all ringds that live in this folder; belongs to its owner, as whom they run."""
    file = folder / "cluster.key"
    if not file.exists():
        file.touch(0o600)
        file.write_text(secrets.token_hex(32))
    os.chown(file, folder.stat().st_uid, folder.stat().st_gid)
    return file


class Rank(Child):
    """One rank's process."""

    def __init__(
        self, number: int, node: Node, command: list[str], environment: dict[str, str], log: Path
    ) -> None:
        super().__init__(command, environment, log)
        self.number = number
        self.node = node

    def __str__(self) -> str:
        return f"rank {self.number} (pid {self.pid})"


@dataclass
class JobRun:
    """The ranks of one job."""

    job_id: str
    program: Path
    ranks: list[Rank] = field(default_factory=list)

    def wait(self, timeout_s: float = PATIENCE_S) -> list[int]:
        """All exit codes, by rank."""
        deadline = time.monotonic() + timeout_s
        return [rank.wait(max(0.1, deadline - time.monotonic())) for rank in self.ranks]

    def expect_success(self, timeout_s: float = PATIENCE_S) -> None:
        codes = self.wait(timeout_s)
        assert codes == [0] * len(codes), f"exit codes {codes}\n{self.transcript()}"

    def expect_output(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits until every rank has printed `text`."""
        for rank in self.ranks:
            rank.expect_output(text, timeout_s)

    def transcript(self) -> str:
        """What all ranks have printed."""
        return "\n".join(
            textwrap.indent(rank.output, f"[{rank.number}] ", lambda _: True) for rank in self.ranks
        )


class Cluster:
    """Nodes and jobs of one test. `folder` has a short name: Unix sockets are made in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.jobs: list[JobRun] = []
        #: Of all nodes that are started from now on; what a test sets comes first.
        self.settings: dict[str, object] = {}
        #: Of all ringds and ranks that are started from now on; "{node}" is the name of theirs.
        self.environment: dict[str, str] = {}
        self._ringd_uid: int | None = None
        self._programs = folder / "bin"  # for a ringd of another user
        #: A folder in memory, which whoever needs it makes.
        self.shared_memory = Path("/dev/shm") / folder.name
        self._ended = threading.Event()
        self._reaper: threading.Thread | None = None

    def run_ringd_as(self, uid: int) -> None:
        """Nodes that are started from now on belong to this user, trainers still to ours. Needs
        root."""
        self._ringd_uid = uid
        self.folder.chmod(0o755)
        os.chown(self.folder, uid, uid)
        # What is built may lie where only we may look.
        self._programs.mkdir(exist_ok=True)
        for name in ("ringd", "ringd-engine"):
            self.publish(binary(name))

    def publish(self, file: Path) -> Path:
        """The same file where every user may read it."""
        self._programs.mkdir(exist_ok=True)
        target = self._programs / file.name
        _link_or_copy(file.resolve(), target)
        return target

    def reap_as_launchers_do(self) -> None:
        """Ranks that have died don't stay zombies for longer than with torchrun, as their parent is
        this process."""

        def reap() -> None:
            while not self._ended.wait(_REAP_INTERVAL_S):
                for job in list(self.jobs):
                    for rank in list(job.ranks):
                        rank.running()

        self._reaper = threading.Thread(target=reap, daemon=True)
        self._reaper.start()

    def start_nodes(self, count: int, **settings: object) -> list[Node]:
        """Starts ringds with these settings (``spin="0s"``) and waits until they serve."""
        started = []
        for _ in range(count):
            started.append(self._start(f"node{len(self.nodes)}", settings))
            # Those that never serve are ended, too.
            self.nodes.append(started[-1])
        for node in started:
            node.wait_until_ready()
        return started

    def restart(self, node: Node, **settings: object) -> Node:
        """A new ringd with the name and the socket of `node`, which has ended."""
        assert not node.running()
        successor = self._start(node.name, settings)
        self.nodes[self.nodes.index(node)] = successor
        successor.wait_until_ready()
        return successor

    def _start(self, name: str, settings: dict[str, object]) -> Node:
        environment = self._environment_of(name)
        if self._ringd_uid is None:
            return Node(name, self.folder, self.settings | settings, environment=environment)
        become = ["setpriv", f"--reuid={self._ringd_uid}", f"--regid={self._ringd_uid}", "--clear-groups"]
        program = self._programs / "ringd"
        return Node(name, self.folder, self.settings | settings, become, program, environment)

    def _environment_of(self, node: str) -> dict[str, str]:
        return {name: value.replace("{node}", node) for name, value in self.environment.items()}

    def start_job(
        self,
        source: str,
        ranks_per_node: Sequence[int],
        *,
        arguments: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        job_id: str | None = None,
        secret: str = "integration",
        only_ranks: Sequence[int] | None = None,
    ) -> JobRun:
        """Starts a process for each rank, which runs `source`; ranks are numbered node by node.

        only_ranks: the others are never started.
        """
        name = job_id or f"job{next(_job_numbers)}"
        program = self.folder / f"{name}-{len(self.jobs) + 1}.py"
        job = JobRun(name, program)
        self.jobs.append(job)
        program.write_text(textwrap.dedent(source))
        places = [
            (node, local_rank, local_size)
            for node, local_size in zip(self.nodes, ranks_per_node, strict=False)
            for local_rank in range(local_size)
        ]
        assert len(places) == sum(ranks_per_node), "more nodes in ranks_per_node than were started"
        for number, (node, local_rank, local_size) in enumerate(places):
            if only_ranks is not None and number not in only_ranks:
                continue
            variables = {
                "RANK": number,
                "WORLD_SIZE": len(places),
                "LOCAL_RANK": local_rank,
                "LOCAL_WORLD_SIZE": local_size,
                "RINGD_SOCKET": node.socket,
                "RINGD_RENDEZVOUS": places[0][0].peer_address,
                "RINGD_JOB_ID": job.job_id,
                "RINGD_JOB_SECRET": secret,
            }
            texts = {name: str(value) for name, value in variables.items()}
            log = self.folder / f"{program.stem}-rank{number}.log"
            command = [python(), str(program), *arguments]
            job.ranks.append(
                Rank(
                    number,
                    node,
                    command,
                    clean_environment() | self._environment_of(node.name) | texts | (environment or {}),
                    log,
                )
            )
        return job

    def rank_exchanges(self, job: JobRun) -> list[dict[str, Any]]:
        """What `ringctl comms` says of the job's rank exchange on each node."""
        replies = [json.loads(self.ringctl("comms", "--json", node=node).stdout) for node in self.nodes]
        entries = [
            entry for reply in replies for entry in reply["communicators"] if entry["job_id"] == job.job_id
        ]
        assert len(entries) == len(self.nodes)
        return [entry["rank_exchange"] for entry in entries]

    def ringctl(
        self, *arguments: str | Path, node: Node | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs ringctl against `node`, the first one if not said."""
        environment = clean_environment()
        if node is not None or self.nodes:
            environment["RINGD_SOCKET"] = str((node or self.nodes[0]).socket)
        return subprocess.run(
            [binary("ringctl"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )

    def end(self) -> None:
        """Ends every process, then fails if a ringd had ended by itself or doesn't end when told
        to."""
        self._ended.set()
        if self._reaper is not None:
            self._reaper.join()
        for job in self.jobs:
            for rank in job.ranks:
                rank.destroy()
        died = [node for node in self.nodes if not node.running() and not node.may_end]
        for node in self.nodes:
            node.send(signal.SIGCONT)
            node.send(signal.SIGTERM)
        slow = [node for node in self.nodes if not _ends_within(node, 15.0)]
        for node in self.nodes:
            node.destroy()
        assert not died, "\n".join(f"{node} died ({node.wait()}):\n{node.output}" for node in died)
        assert not slow, "\n".join(f"{node} did not end after SIGTERM:\n{node.output}" for node in slow)


def _link_or_copy(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        shutil.copy(source, target)


def _ends_within(node: Node, seconds: float) -> bool:
    try:
        node.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
