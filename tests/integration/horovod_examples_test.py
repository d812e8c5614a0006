"""Programs that were written for Horovod run with one line changed: the import.

``programs/horovod`` has programs of our own that make each call which Horovod's published examples
for PyTorch make. They are started by ``ringctl run``.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.processes import Child, clean_environment, python

PROGRAMS = Path(__file__).parent / "programs/horovod"
THEIRS = "import horovod.torch as hvd\n"
OURS = "import ringd.torch as hvd\n"
TIMEOUT_S = 150


def run(
    cluster: Cluster, name: str, *arguments: str, nodes: int = 1, ranks: int = 2, fails: bool = False
) -> str:
    """What the program printed, with its import changed."""
    source = (PROGRAMS / name).read_text()
    assert source.count(THEIRS) == 1
    assert "ringd" not in source
    program = cluster.folder / name
    program.write_text(source.replace(THEIRS, OURS))
    places = ("--nodes", str(nodes), "-n", str(ranks), "--timeout", str(TIMEOUT_S - 10))
    done = cluster.ringctl("run", *places, "--", python(), program, *arguments, timeout_s=TIMEOUT_S)
    output = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, output
    return output


def accuracies(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"rank \d+ of \d+: accuracy ([0-9.]+)", output)]


@pytest.mark.parametrize(
    "options",
    [[], ["--fp16-allreduce", "--gradient-predivide-factor", "2.0"], ["--use-mixed-precision"]],
    ids=["plain", "fp16 and predivided", "mixed precision"],
)
def test_mnist(cluster: Cluster, options: list[str]) -> None:
    output = run(cluster, "mnist.py", *options)
    first, second = accuracies(output)
    assert first == second > 0.75, output
    assert "UserWarning" not in output, output


def test_mnist_on_two_nodes(cluster: Cluster) -> None:
    output = run(cluster, "mnist.py", "--epochs", "2", nodes=2, ranks=1)
    first, second = accuracies(output)
    assert first == second > 0.4, output


@pytest.mark.parametrize("options", [[], ["--fp16-allreduce"]], ids=["plain", "fp16"])
def test_synthetic_benchmark(cluster: Cluster, options: list[str]) -> None:
    output = run(cluster, "synthetic_benchmark.py", *options)
    assert len(re.findall(r"round \d+: [0-9.]+ images/s on each rank", output)) == 3, output
    assert re.search(r"in all [0-9.]+ images/s on 2 ranks", output), output


@pytest.mark.timeout(330)
def test_imagenet_with_checkpoints(cluster: Cluster) -> None:
    folder = cluster.folder / "checkpoints"
    folder.mkdir()
    checkpoints = ("--checkpoints", str(folder))
    first = run(cluster, "imagenet.py", *checkpoints, "--epochs", "2")
    assert first.count("resumed from epoch 0") == 2, first
    second = run(cluster, "imagenet.py", *checkpoints, "--epochs", "4", ranks=3)
    assert second.count("resumed from epoch 2") == 3, second
    reached = re.search(r"epoch 4: .*accuracy ([0-9.]+)", second)
    assert reached is not None
    assert float(reached.group(1)) > 0.85, second


@pytest.mark.parametrize(
    ("options", "nodes"), [([], 1), (["--dynamic"], 2)], ids=["static, one node", "dynamic, two nodes"]
)
def test_process_sets(cluster: Cluster, options: list[str], nodes: int) -> None:
    output = run(cluster, "process_sets.py", *options, nodes=nodes, ranks=4 // nodes)
    sets = ("id=0, ranks=[0, 1, 2, 3])", "id=1, ranks=[0, 2])", "id=2, ranks=[1, 3])")
    for rank in range(4):
        for words in sets:
            assert f"rank {rank}: ProcessSet(process_set_{words}" in output, output
    losses = {
        int(rank): (first, last)
        for rank, first, last in re.findall(r"rank (\d): loss ([0-9.]+) became ([0-9.]+)", output)
    }
    assert losses[0] == losses[2], output
    assert losses[1] == losses[3], output
    assert losses[0][0] != losses[1][0], output
    # Two targets, 2 apart, have one mean: the set's members have met there.
    assert {last for _, last in losses.values()} == {"1.0000"}, output
    assert "UserWarning" not in output, output


def test_adasum_is_refused_with_what_to_use(cluster: Cluster) -> None:
    output = run(cluster, "synthetic_benchmark.py", "--use-adasum", fails=True)
    assert "ringd.torch has no Adasum, which Horovod has: use op=hvd.Average" in output


VARIABLES = """
    import ringd.torch as hvd

    for _ in range(2):
        hvd.init()
        print(f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}")
        hvd.shutdown()
"""


def test_variables_of_horovodrun_place_ranks_and_ignored_ones_are_named_once(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    program = cluster.folder / "variables.py"
    program.write_text(textwrap.dedent(VARIABLES))
    ranks = []
    for rank in range(2):
        variables = {
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": "2",
            "HOROVOD_LOCAL_RANK": str(rank),
            "HOROVOD_LOCAL_SIZE": "2",
            "HOROVOD_CYCLE_TIME": "1",
            "HOROVOD_HOSTNAME": "localhost",
            "RINGD_SOCKET": str(node.socket),
        }
        log = cluster.folder / f"variables-{rank}.log"
        ranks.append(Child([python(), program], clean_environment() | variables, log))
    try:
        codes = [child.wait() for child in ranks]
    finally:
        for child in ranks:
            child.destroy()
    outputs = [child.output for child in ranks]
    assert codes == [0, 0], outputs
    for rank, output in enumerate(outputs):
        assert output.count(f"rank {rank} of 2, local {rank} of 2") == 2, output
    assert outputs[0].count("ringd ignores HOROVOD_CYCLE_TIME (") == 1, outputs[0]
    assert "ignores" not in outputs[1]
