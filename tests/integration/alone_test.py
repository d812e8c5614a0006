"""A program started as it stands, where no ringd is: as root, and as a user who may nothing."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.processes import ROOT, Child, binary, clean_environment

USER = 54_322

# Two trainings with the same seed, the second one through ringd; every function besides.
TRAIN = """
    import ringd.torch as hvd
    import torch

    torch.set_num_threads(1)


    def train(wrap):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1))
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model)
        data = torch.randn(64, 8)
        for _ in range(20):
            optimizer.zero_grad()
            (model(data) - data.sum(1, keepdim=True)).pow(2).mean().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


    def distributed(optimizer, model):
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


    hvd.init()
    assert torch.equal(train(lambda optimizer, model: optimizer), train(distributed))
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64):
        for count in (0, 1, 8, 9, 5_000, 2_000_000):
            tensor = torch.arange(count).to(dtype)
            for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
                assert torch.equal(hvd.allreduce(tensor, op=op), tensor)
            assert torch.equal(hvd.broadcast(tensor, root_rank=0), tensor)
    scaled = hvd.allreduce(torch.ones(5_000), op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5)
    assert torch.equal(scaled, torch.full((5_000,), 1.5))
    many = [torch.full((50_000,), float(i)) for i in range(100)]
    handles = [hvd.allreduce_async(tensor, name=f"many.{i}") for i, tensor in enumerate(many)]
    for handle, tensor in zip(handles, many):
        assert torch.equal(hvd.synchronize(handle), tensor)
    assert hvd.broadcast_object({"epoch": 3}, root_rank=0) == {"epoch": 3}
    hvd.barrier()
    arena = hvd.empty(1000)
    assert torch.equal(hvd.allreduce_(arena.fill_(2)), torch.full((1000,), 2.0))
    place = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    assert place == (0, 1, 0, 1, 0, 1) and hvd.is_homogeneous()
    hvd.shutdown()
    hvd.init()
    print("alone", hvd.size())
"""

# Without PyTorch, which takes its time to be imported. One write, so that the ranks' lines don't
# mix.
SUM = """
    import sys
    from array import array

    import ringd

    with ringd.Context() as context:
        (number,) = context.register([ringd.TensorSpec("x", shape=(3,))])
        data = array("f", [1, 1, 1])
        address, _ = data.buffer_info()
        context.wait(context.submit(number, address, address))
        sys.stdout.write(f"summed {context.place.size} {data.tolist()}\\n")
"""


class Computer:
    """This machine with an empty /run, where what is installed can be used by everybody: programs
    in /run/bin, the Python packages in /run/site, the test's programs in /run/work. The users' home
    is /run/home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        (self._packages,) = (ROOT / ".venv" / "lib").glob("python3*/site-packages")

    def write(self, name: str, source: str) -> str:
        (self.folder / name).write_text(textwrap.dedent(source))
        return f"/run/work/{name}"

    def run(self, script: str, *, user: int = 0, timeout_s: float = 60) -> Child:
        """The shell script, as `user`, after its end."""
        steps = [
            "set -e",
            "mount -t tmpfs -o mode=755 tmpfs /run",
            "mkdir /run/bin /run/site /run/work /run/home",
            f"chown {user}:{user} /run/home",
            f"mount --rbind {shlex.quote(str(self._packages))} /run/site",
            f"mount --bind {shlex.quote(str(self.folder))} /run/work",
            *(
                f"cp -L {shlex.quote(str(binary(name)))} /run/bin/"
                for name in ("ringd", "ringd-engine", "ringctl")
            ),
            "ln -s /usr/bin/python3 /run/bin/python",
            r"""printf '#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n' >/run/bin/torchrun""",
            "chmod 755 /run/bin/*",
            "cd /",
            f"exec setpriv --reuid={user} --regid={user} --clear-groups sh -c {shlex.quote(script)}",
        ]
        self._count += 1
        environment = clean_environment() | {
            "PATH": "/run/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": "/run/site",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/run/home",
        }
        environment.pop("XDG_RUNTIME_DIR", None)
        command = ["unshare", "--mount", "--propagation=private", "sh", "-c", "\n".join(steps)]
        child = Child(command, environment, self.folder / f"output-{self._count}.log")
        try:
            child.wait(timeout_s)
        finally:
            child.destroy()
        return child


@pytest.fixture
def computer(cluster: Cluster) -> Computer:
    cluster.folder.chmod(0o755)
    return Computer(cluster.folder)


@pytest.mark.parametrize("user", [0, USER])
def test_a_trainer_without_launcher_works_alone(computer: Computer, user: int) -> None:
    ended = computer.run(f"python {computer.write('train.py', TRAIN)}", user=user)
    assert ended.wait() == 0, ended.output
    assert ended.output == "alone 1\n"


@pytest.mark.parametrize(
    ("before", "trainer", "why"),
    [
        ("ringctl drain", "", "is draining"),
        ("", f"setpriv --reuid={USER} --regid={USER} --clear-groups", "allowed_users"),
        ("kill -STOP $ringd", "", "/run/ringd/ringd.sock"),
    ],
    ids=["drains", "does not admit", "is stopped"],
)
def test_a_trainer_alone_goes_on_without_a_ringd_that(
    computer: Computer, before: str, trainer: str, why: str
) -> None:
    program = computer.write("sum.py", SUM)
    ended = computer.run(
        f"""
        mkdir /run/ringd
        ringd --config /dev/null 2>/run/work/ringd.log & ringd=$!
        for _ in $(seq 600); do [ -S /run/ringd/ringd.sock ] && break; sleep 0.1; done
        {before}
        {trainer} python {program}
        code=$?
        kill -CONT $ringd; kill $ringd; wait $ringd
        exit $code
        """
    )
    assert ended.wait() == 0, ended.output
    warning, summed = ended.output.splitlines()[-2:]
    assert warning.startswith("ringd: "), ended.output
    assert why in warning, ended.output
    assert warning.endswith("This one rank goes on alone, without it"), ended.output
    assert summed == "summed 1 [1.0, 1.0, 1.0]"


def test_a_socket_that_somebody_has_named_is_not_passed_over(computer: Computer) -> None:
    program = computer.write("sum.py", SUM)
    ended = computer.run(f"RINGD_SOCKET=/run/home/ringd.sock python {program}")
    assert ended.wait() != 0
    assert (
        "no ringd at /run/home/ringd.sock: start one there with `ringd --config /dev/null --socket"
        in ended.output
    )


def ways_out(output: str) -> tuple[str, str]:
    """What the error under torchrun says to do: the command that starts a ringd, and the one that
    starts the job."""
    lines = [line for line in output.splitlines() if "no ringd at /run/ringd/ringd.sock: " in line]
    assert lines, output
    found = re.search(r"start one with (.*), or start the job with `([^`]*)` in place of torchrun", lines[0])
    assert found, lines[0]
    return found[1], found[2]


@pytest.mark.parametrize("user", [0, USER])
def test_under_torchrun_without_a_ringd_both_ways_out_work(computer: Computer, user: int) -> None:
    program = computer.write("sum.py", SUM)
    failed = computer.run(f"torchrun --nproc-per-node 2 {program}", user=user)
    assert failed.wait() != 0
    service, job = ways_out(failed.output)
    assert ("systemctl" in service) == (user == 0)
    found = re.search(
        r"`(ringd --config /dev/null --socket (\S+))` and (RINGD_SOCKET=\S+) for the ranks", service
    )
    assert found, service

    # As it was said: a ringd of one's own, then the same command again.
    again = computer.run(
        f"""
        {found[1]} & ringd=$!
        for _ in $(seq 600); do [ -S {found[2]} ] && break; sleep 0.1; done
        {found[3]} torchrun --nproc-per-node 2 {program}
        code=$?
        kill $ringd && wait $ringd
        exit $code
        """,
        user=user,
    )
    assert again.wait() == 0, again.output
    assert again.output.count("summed 2 [2.0, 2.0, 2.0]") == 2
    # And the other way.
    run = computer.run(job.replace("train.py", program), user=user)
    assert run.wait() == 0, run.output
    assert run.output.count("summed 2 [2.0, 2.0, 2.0]") == 2


def test_ringd_tells_a_user_without_its_folder_to_name_a_socket(computer: Computer) -> None:
    ended = computer.run("ringd", user=USER)
    assert ended.wait() == 1, ended.output
    assert "--socket FOLDER/ringd.sock" in ended.output
