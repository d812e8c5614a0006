"""Every example of client/python/examples runs and shows what it is there to show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import ringd
import torch

from tests.integration.cluster import Cluster
from tests.integration.processes import ROOT, python

EXAMPLES = ROOT / "client/python/examples"
TIMEOUT_S = 150


def run(cluster: Cluster, example: str, *arguments: str | Path, nodes: int = 1, ranks: int = 2) -> str:
    """What the example printed."""
    places = ("--nodes", str(nodes), "-n", str(ranks), "--timeout", str(TIMEOUT_S - 10))
    command = (*places, "--", python(), EXAMPLES / example, *arguments)
    done = cluster.ringctl("run", *command, timeout_s=TIMEOUT_S)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Warning" not in output, output
    return output


@pytest.mark.parametrize("example", [path.name for path in EXAMPLES.glob("*.py")])
def test_first_lines_say_how_it_is_started(example: str) -> None:
    if example != "digits_data.py":
        assert re.search(rf"^ *ringctl run .*-- python {example}", (EXAMPLES / example).read_text(), re.M)


def figures(output: str, name: str) -> list[float]:
    return [float(number) for number in re.findall(rf"{name} ([0-9.]*[0-9])", output)]


def test_readme_lists_every_example() -> None:
    listed = set(re.findall(r"\| \[`(\w+\.py)`\]\(\1\)", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("nodes", [1, 2])
def test_data_loading(cluster: Cluster, nodes: int) -> None:
    output = run(cluster, "data_loading.py", nodes=nodes, ranks=2 // nodes)
    assert figures(output, "accuracy")[-1] > 0.85, output


def test_metrics_are_those_of_the_whole_test_set(cluster: Cluster) -> None:
    # 357 test images among 2 ranks: unequal parts.
    output = run(cluster, "metrics.py")
    shared, alone = figures(output, "accuracy")[-2:]
    assert shared == alone > 0.85, output
    losses = figures(output, "loss")
    assert losses[-1] < losses[0] / 2, output


@pytest.mark.timeout(480)
def test_a_checkpoint_is_resumed_on_another_number_of_ranks(cluster: Cluster) -> None:
    whole, parts = cluster.folder / "whole.pt", cluster.folder / "parts.pt"
    run(cluster, "checkpoints.py", "--checkpoint", whole, "--epochs", "3")
    first = run(cluster, "checkpoints.py", "--checkpoint", parts, "--epochs", "2")
    assert "2 ranks go on after epoch 0" in first
    second = run(cluster, "checkpoints.py", "--checkpoint", parts, "--epochs", "3", ranks=3)
    assert "3 ranks go on after epoch 2" in second
    assert figures(second, "accuracy")[-1] > 0.7, second
    # The steps are the same as without an interruption, but for rounding.
    one, other = (torch.load(path, weights_only=True) for path in (whole, parts))
    assert one["progress"] == other["progress"]
    for name, parameter in one["model"].items():
        assert torch.allclose(parameter, other["model"][name], atol=1e-3), name
    assert not list(cluster.folder.glob("*.unfinished"))


def test_accumulation_with_clipping_and_a_scheduler(cluster: Cluster) -> None:
    output = run(cluster, "accumulation.py")
    assert figures(output, "accuracy")[-1] > 0.8, output
    rates = figures(output, "rate")
    assert rates[-1] < 0.01 < rates[0], output
    clipped = [int(number) for number in re.findall(r"(\d+) steps clipped", output)]
    assert clipped[-1] > 0, output


def test_mixed_precision(cluster: Cluster) -> None:
    output = run(cluster, "mixed_precision.py")
    assert figures(output, "accuracy")[-1] > 0.85, output


def test_a_gan(cluster: Cluster) -> None:
    distances = figures(run(cluster, "gan.py"), "distance")
    assert len(distances) == 9
    assert distances[-1] < 0.8 * distances[0]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_model_in_two_halves(cluster: Cluster, nodes: int) -> None:
    output = run(cluster, "model_parallel.py", nodes=nodes, ranks=4 // nodes)
    assert figures(output, "accuracy")[-1] > 0.85, output
    assert "both halves are the same in all 2 copies" in output


def test_train_digits(cluster: Cluster) -> None:
    output = run(cluster, "train_digits.py", "--epochs", "2")
    assert "(ok)" in output


def test_the_program_that_help_shows(cluster: Cluster) -> None:
    assert ringd.__doc__ is not None
    lines = re.findall(r"^    ((?:context|\(number,\)|address) ?[=.].*)$", ringd.__doc__, re.MULTILINE)
    assert len(lines) == 4
    program = cluster.folder / "help.py"
    check = [
        "import ctypes",
        "numbers = (ctypes.c_float * 1000).from_address(address)",
        "numbers[:] = [context.place.rank + 1.0] * 1000",
    ]
    said = ["assert list(numbers) == [3.0] * 1000", "print('sums are right')"]
    program.write_text("\n".join(["import ringd", *lines[:3], *check, lines[3], *said]))
    done = cluster.ringctl("run", "-n", "2", "--timeout", str(TIMEOUT_S), "--", python(), program)
    assert done.stdout.count("sums are right") == 2, done.stdout + done.stderr
