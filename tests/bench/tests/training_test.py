"""The trainings of the suite `torch`: their models are what the rows say, and a driver of each
library trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from harness.aggregate import headline
from harness.paths import DRIVERS
from harness.peers.training import TRAININGS, training_command, training_environment
from harness.report import row_json, row_text
from harness.row import Measured, Sample
from harness.session import Launch, PeerError, Session, control_folder
from harness.suites import torch as suite
from harness.table import render_row
from harness.work import Batch, TensorList, Way
from training_models import MODELS, Training


@pytest.mark.parametrize("model", MODELS)
def test_a_models_parameters_are_those_of_the_row(model: str) -> None:
    assert tuple(Training(model, 0).counts()) == suite.COUNTS[model]()


def test_the_models_are_of_the_sizes_that_the_readme_names() -> None:
    sizes = {model: (len(counts()), sum(counts())) for model, counts in suite.COUNTS.items()}
    assert sizes == {
        "mlp": (42, 21_021_000),
        "transformer": (146, 9_479_690),
        "resnet50": (161, 25_557_032),
    }


def run_training(library: str, model: str, counts: tuple[int, ...], mode: str = "train") -> list[float]:
    folder = control_folder(1)
    command = training_command(sys.executable, folder, library, 0)
    environment = {**training_environment("training-one-core"), "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    session = Session(library, folder, 1, [Launch(command, {**environment, "MASTER_PORT": "0"})])
    try:
        session.ready(60)
        batch = Batch(inner=1, samples=2, warmup=0, verify=True)
        return session.run(TensorList(model, counts), "f32", Way("training", mode), batch, 60).seconds
    finally:
        session.stop()


@pytest.mark.parametrize("library", ["alone", "torch"])
def test_a_driver_trains(library: str) -> None:
    seconds = run_training(library, "transformer", suite.transformer())
    assert len(seconds) == 2
    assert all(0.0 < value < 30.0 for value in seconds)


def test_a_driver_refuses_a_row_whose_tensors_are_not_the_models() -> None:
    with pytest.raises(PeerError, match="'mlp' has other parameters than the row says"):
        run_training("alone", "mlp", (1000,))


def test_ranks_whose_parameters_differ_are_found_out() -> None:
    script = """
import json, os, sys
sys.argv = ["training_driver.py", "unused", "alone", "0"]
import training_driver
from control import Work
import torch
class Differing(training_driver.Alone):
    def extremes(self, value):
        return value, value + 1e-12
trainer = training_driver.Trainer(Differing())
work = Work(1, "f32", "train", "ordinary", 1, 1, 0, 0, True, [], [], "transformer")
object.__setattr__(work, "counts", training_driver.Training("transformer", 0).counts())
assert trainer.prepare(work) == ""
print(json.dumps(trainer.agrees()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(DRIVERS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout) is False


def test_the_report_says_what_a_step_takes_beyond_computing() -> None:
    row = next(one for one in suite.rows() if one.name == "torch/2 ranks/MLP")

    def sample(contestant: str, seconds: float) -> Sample:
        return Sample(contestant, "training/train", (seconds,) * 10, 120.0, 120.0, load=0.1)

    samples = [sample("ringd", 0.1), sample("torch", 0.125), sample("alone", 0.08)]
    measured = Measured(row, floor_seconds=1e-3, floor_kind="memory", samples=samples)
    verdict = headline(measured)
    assert verdict is not None
    assert verdict.best_peer == "torch"
    entry = row_json(measured)
    assert entry["metric"] == "time of a step"
    assert entry["beyond"] == {"ringd": 20.0, "torch": 45.0}
    assert "floor_distance" not in entry
    assert "100 ms, 20 ms beyond computing" in row_text(entry)
    assert "| 100 (20 beyond computing) | torch 125 (45 beyond computing) | alone 80 |" in render_row(
        entry, "now"
    )
    assert [clause["met"] for clause in entry["clauses"]] == [True, None, True]


def test_every_row_trains_beside_its_peers_and_alone() -> None:
    for row in suite.rows():
        configurations = {way.configuration for ways in row.ways.values() for way in ways}
        assert configurations <= set(TRAININGS)
        assert set(row.references) == {"alone"}
        assert row.training
