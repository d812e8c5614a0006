"""A stranger walks through README: from the environment to a job that failed on a cluster.

Every command comes from README's own code blocks and deploy/systemd's. One that the walk neither
runs nor passes over with a reason fails it. The two machines are bare Debians with a real systemd,
the hosts node-a and node-b of README; alice, who trains, is an ordinary user there.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.walk.commands import Commands, program
from tests.deploy.walk.machine import Machine, make_debian
from tests.integration.processes import ROOT, Child, binary, kernel_shows_exits, wait_until
from tests.soak.network import Network

README = ROOT / "README.md"
SERVICE = ROOT / "deploy/systemd/README.md"
NAMES = ("node-a", "node-b")
#: How long a torchrun may take that several others run beside.
RUN_S = 300.0
#: What README leaves to its reader, and what saves time on machines with few processors.
SUBSTITUTES = {
    "RINGD_JOB_SECRET=...": "RINGD_JOB_SECRET='sixteen letters.'",
    "--nproc-per-node 4": "--nproc-per-node 2",
    "ringctl run -n 4": "ringctl run -n 2",
    "ringctl run --nodes 2 -n 2": "ringctl run --nodes 2 -n 1",
}
SECOND_NODE = {"--node-rank 0": "--node-rank 1"}
#: Commands that the walk does not run, by their beginnings, and why.
NOT_RUN = {
    "deploy/quickstart": "builds everything; integration/examples_test.py runs what it trains",
    "tests/run": "runs this test",
}
# Around README's own lines.
MODEL = """
import torch

torch.set_num_threads(1)


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


"""
TRAINING = """
import os
import time

for step in range(int(os.environ.get("STEPS", "5"))):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.01)
print(f"rank {hvd.rank()} of {hvd.size()} is done", flush=True)
"""


class Walk:
    """Both machines, and both pages. Ownership: owns the machines and their network."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.readme = Commands(README)
        self.service = Commands(SERVICE)
        self.network = Network()
        self.machines = [
            Machine(name, folder / name, self.network.inside(node)) for node, name in enumerate(NAMES)
        ]
        self._environment = f"cd {ROOT}\n{self.readme.take('eval ')}\ncd"

    def boot(self) -> None:
        """Both machines, with an alice on each."""
        programs = self._folder / "bin"
        programs.mkdir()
        for name in ("ringd", "ringd-engine", "ringctl"):
            shutil.copy(binary(name), programs / name)
        packages = self.service.take("apt-get install --no-install-recommends ").split()[3:]
        debian = make_debian(self._folder / "debian", ["python3", "python3-venv", *packages])
        hosts = "".join(f"{self.network.address(node)} {name}\n" for node, name in enumerate(NAMES))
        for machine in self.machines:
            # bin/ are links into the folder of whoever built.
            machine.boot(debian, {ROOT: ROOT, programs: ROOT / "bin"}, f"127.0.0.1 localhost\n{hosts}")
            machine.shell("root", "useradd --create-home --shell /bin/bash alice")
            train = f"{MODEL}{program(README)}{TRAINING}"
            machine.shell("alice", f"cat > train.py <<'END'\n{train}\nEND")

    def in_environment(self, command: str, more_substitutes: Mapping[str, str] = {}) -> str:
        """For alice, with what README leaves to her filled in."""
        for words, others in {**SUBSTITUTES, **more_substitutes}.items():
            command = command.replace(words, others)
        return f"{self._environment}\n{command}"

    def start_on_both(self, command: str) -> list[Child]:
        return [
            machine.start("alice", self.in_environment(command, substitutes))
            for machine, substitutes in zip(self.machines, ({}, SECOND_NODE), strict=True)
        ]

    def close(self) -> None:
        for machine in self.machines:
            machine.close()
        self.network.close()


@pytest.fixture
def walk() -> Iterator[Walk]:
    if os.geteuid() != 0:
        pytest.fail("needs root: it makes namespaces")
    folder = Path(tempfile.mkdtemp(prefix="ringd-walk-", dir="/tmp"))
    made = Walk(folder)
    try:
        made.boot()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def expect_ranks(output: str, ranks: list[int], size: int) -> None:
    for rank in ranks:
        assert f"rank {rank} of {size} is done" in output, output


def train_on_one_machine(walk: Walk) -> None:
    """As README says: alone, and by ringctl, without any service."""
    machine = walk.machines[0]
    for beginning, size in (("python ", 1), ("ringctl run -n ", 2), ("ringctl run --nodes 2 ", 2)):
        output = machine.shell("alice", walk.in_environment(walk.readme.take(beginning)))
        expect_ranks(output, list(range(size)), size)


def install_the_wheel(walk: Walk) -> None:
    """Into an environment of alice's own, without any network."""
    install = walk.readme.take("pip install ")
    walk.machines[0].shell(
        "alice",
        f"""
        python3 -m venv ~/own
        . ~/own/bin/activate
        cd {ROOT}
        {install}
        cd
        python -c 'import ringd; assert ringd.__file__.startswith("/home/alice/own/"), ringd.__file__'
        """,
    )


def train_with_ringds_of_ones_own(walk: Walk, torchrun: str) -> None:
    lines = [*walk.readme.take_all("export RINGD_SOCKET="), walk.readme.take("ringd --config "), torchrun]
    runs = walk.start_on_both("\n".join(lines))
    for node, run in enumerate(runs):
        assert run.wait(RUN_S) == 0, run.output
        expect_ranks(run.output, [2 * node, 2 * node + 1], 4)
    for machine in walk.machines:
        machine.shell("alice", "pkill -x ringd; while pgrep -x ringd; do sleep 0.05; done")


def start_the_service(walk: Walk) -> None:
    install = [
        walk.service.take(beginning)
        for beginning in ("deploy/systemd/install --peer-interface", "systemctl enable", "usermod")
    ]
    update = [
        walk.service.take(beginning)
        for beginning in ("deploy/systemd/install", "ringd --check-config", "ringctl drain")
    ]
    first, second = walk.machines
    first.shell("root", "\n".join([f"cd {ROOT}", *install, *update]))
    bring_the_service(walk)
    second.shell("root", "\n".join(["cd ringd", *install, *update]))
    made = first.shell("root", "cat /etc/ringd/cluster.key")
    for machine in walk.machines:
        assert machine.shell("root", "cat /etc/ringd/cluster.key") == made
        owned = machine.shell("root", "stat --format '%U %a' /etc/ringd/cluster.key")
        assert owned.split() == ["ringd", "600"]
        said = machine.shell("root", "systemctl is-active ringd; ps -o user= -C ringd; id alice")
        assert said.split()[:2] == ["active", "ringd"], said


def bring_the_service(walk: Walk) -> None:
    """From the first machine to the second, which have no ssh: what that would run there."""
    first, second = walk.machines
    packing, unpacking = walk.service.take("tar ").split(" | ssh node-b ")
    first.send(f"cd {ROOT}\n{packing}", second, unpacking)
    second.shell("root", walk.service.take("ssh node-b ").removeprefix("ssh node-b "))
    key, _, folder = walk.service.take("scp -p ").split("#")[0].removeprefix("scp -p ").partition(" node-b:")
    first.send(f"tar -c -C $(dirname {key}) $(basename {key})", second, f"tar -x -C {folder}")


def start_a_long_job(walk: Walk, torchrun: str) -> list[Child]:
    return walk.start_on_both(f"export STEPS=1000000\n{torchrun}")


def jobs(machine: Machine, options: str = "") -> list[dict[str, Any]]:
    reply = json.loads(machine.shell("alice", f"ringctl jobs --json {options}"))
    return list(reply["jobs"])


def states(machine: Machine) -> list[str]:
    return [job["state"] for job in jobs(machine)]


def wait_until_running(walk: Walk, runs: list[Child]) -> None:
    for machine, run in zip(walk.machines, runs, strict=True):
        wait_until(
            lambda machine=machine, run=run: states(machine) == ["running"] or not run.running(),  # type: ignore[misc]
            "the job runs",
        )
        assert run.running(), run.output


def look_for_a_stalled_rank(walk: Walk) -> str:
    """Where it is: as every node says it."""
    commands = walk.readme.take_all("ringctl ")
    second = walk.machines[1]
    culprit = jobs(second)[0]["local_members"][-1]
    second.shell("alice", f"kill -STOP {culprit['pid']}")
    who = f"rank {culprit['rank']}, pid {culprit['pid']} on node-b"
    for machine in walk.machines:
        wait_until(lambda machine=machine: states(machine) == ["stalled"], "the stall is seen")  # type: ignore[misc]
        said = {command.partition("#")[0].strip(): machine.shell("alice", command) for command in commands}
        for query in ("jobs", "jobs --all", "comms", "queues"):
            assert who in said[f"ringctl {query}"], f"{query}:\n{said}"
    return who


def look_up_a_failed_job(walk: Walk, who: str, runs: list[Child]) -> None:
    pid = who.split("pid ")[1].split()[0]
    walk.machines[1].shell("alice", f"kill -KILL {pid}")
    for run in runs:
        assert run.wait(RUN_S) != 0
    for machine in walk.machines:
        wait_until(lambda machine=machine: states(machine) == [], "the job has ended")  # type: ignore[misc]
        said = machine.shell("alice", "ringctl jobs --all")
        for words in (who, "LASTS", "failed", *(["signal 9"] if kernel_shows_exits() else [])):
            assert words in said, said


# A minute, or three where processors are busy: fifteen processes import PyTorch.
@pytest.mark.timeout(1200)
def test_readme_is_walked_line_by_line(walk: Walk) -> None:
    for beginning in NOT_RUN:
        walk.readme.take(beginning)
    train_on_one_machine(walk)
    torchrun = [walk.readme.take("torchrun ") for _ in range(2)]
    install_the_wheel(walk)
    train_with_ringds_of_ones_own(walk, torchrun[1])
    start_the_service(walk)
    output = walk.machines[0].shell("alice", walk.in_environment(torchrun[0]))
    expect_ranks(output, [0, 1], 2)
    runs = start_a_long_job(walk, torchrun[1])
    wait_until_running(walk, runs)
    who = look_for_a_stalled_rank(walk)
    look_up_a_failed_job(walk, who, runs)
    assert walk.readme.left() == []
    assert walk.service.left() == []
