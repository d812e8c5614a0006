"""Figures: what ringd takes beside NCCL in the trainer's own process."""

from __future__ import annotations

import contextlib
import csv
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gpu.harness.check import Findings, NotHere
from tests.gpu.harness.libraries import PROGRAMS
from tests.gpu.harness.mps import Mps, MpsError
from tests.gpu.harness.site import Nodes, Site, expect_success
from tests.integration.cluster import JobRun
from tests.integration.failures.events import parse_events
from tests.integration.processes import ROOT

GRADIENTS = ROOT / "tests" / "bench" / "data" / "grads_resnet101.csv"
SIZES = (4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20, 256 << 20)
WORK_S = 3.0
TRAINING_S = 15.0
TORCH_TIMEOUT_S = 60
JOB_TIMEOUT_S = 110.0
WITHOUT_MPS, WITH_MPS = "without MPS", "with MPS"

#: Each work's name and its tensors' elements.
Works = list[tuple[str, list[int]]]


def works() -> Works:
    sizes = [(_size_text(size), [size // 4]) for size in SIZES]
    return [("null operation (1 element)", [1]), *sizes, ("ResNet-101's 314 gradients", gradients(GRADIENTS))]


def gradients(file: Path) -> list[int]:
    """The elements of each of a model's gradients, in the order of the backward pass."""
    with file.open() as lines:
        return [int(row["bytes_fp32"]) // 4 for row in csv.DictReader(lines)]


def _size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def check_figures(site: Site, mode: str) -> Findings:
    _refuse_emulators(site)
    with _mode(site, mode) as (there, facts):
        return Findings(facts, measure(there, mode, works(), WORK_S))


def check_training(site: Site, mode: str) -> Findings:
    """NotHere: no PyTorch with CUDA."""
    _refuse_emulators(site)
    version = torch_with_cuda()
    with _mode(site, mode) as (there, facts):
        found = measure_training(there, mode)
        return Findings([f"PyTorch {version}", *facts, *found.facts], found.figures)


def _refuse_emulators(site: Site) -> None:
    if site.emulated:
        raise NotHere("an emulator's times say nothing")


@contextlib.contextmanager
def _mode(site: Site, mode: str) -> Iterator[tuple[Site, list[str]]]:
    """The site in this mode, and a list to which facts of it are added at the end."""
    facts: list[str] = []
    if mode == WITHOUT_MPS:
        yield site, facts
        return
    try:
        client: list[str | Path] = [sys.executable, PROGRAMS / "mps_client.py", site.libraries.cuda]
        with Mps(client) as mps:
            yield site.with_variables(mps.variables), facts
            servers = mps.servers()
            assert servers, "MPS ran, and no process has used it"
            facts.append(f"MPS servers: {servers}")
    except MpsError as error:
        raise NotHere(str(error)) from None


def torch_with_cuda() -> str:
    """Its version. NotHere: there is none."""
    program = "import torch; print(torch.__version__, torch.cuda.is_available())"
    try:
        said = subprocess.run(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"importing PyTorch has taken more than {TORCH_TIMEOUT_S} s") from None
    version, _, available = said.stdout.strip().partition(" ")
    if available != "True":
        why = f"PyTorch {version} has no CUDA here" if version else "no PyTorch"
        raise NotHere(f"{why} ({sys.executable})")
    return version


def measure(site: Site, mode: str, chosen: Works, seconds: float) -> list[dict[str, Any]]:
    """A row for each work, of two ranks on one GPU."""
    with site.nodes(2) as nodes:
        variables = {"FIGURES": json.dumps(chosen), "RINGD_NCCL_LIBRARY": str(site.libraries.nccl)}
        job = nodes.start("figures.py", [1, 1], variables | _common(nodes, seconds))
        expect_success(job, JOB_TIMEOUT_S)
        return rows(job, mode)


def measure_training(site: Site, mode: str) -> Findings:
    """The same of a training step."""
    with site.nodes(2) as nodes:
        job = nodes.start("training_step.py", [1, 1], _common(nodes, TRAINING_S))
        expect_success(job, JOB_TIMEOUT_S)
        output = job.ranks[0].output
        facts = [f"PyTorch's NCCL: {event['reason']}" for event in parse_events(output, "unavailable")]
        facts += [
            f"parameters differ by {event['largest_difference']:.1e} from those of DistributedDataParallel"
            for event in parse_events(output, "compared")
        ]
        return Findings(facts, rows(job, mode))


def _common(nodes: Nodes, seconds: float) -> dict[str, str]:
    return {"FIGURES_SECONDS": str(seconds), "FIGURES_FOLDER": str(nodes.cluster.folder)}


def rows(job: JobRun, mode: str) -> list[dict[str, Any]]:
    """A turn lasts as long as on the rank where it lasted longest."""
    found = []
    for events in zip(*(parse_events(rank.output, "measured") for rank in job.ranks), strict=True):
        first = events[0]
        medians = {
            way: statistics.median(map(max, zip(*(event["seconds"][way] for event in events), strict=True)))
            for way in first["seconds"]
        }
        row = {"mode": mode, "work": first["work"], "bytes": first["bytes"]}
        row |= {"turns": len(first["seconds"]["ringd"]), "ringd_s": medians["ringd"]}
        if "nccl" in medians:
            row |= {"nccl_s": medians["nccl"], "ratio": medians["ringd"] / medians["nccl"]}
        found.append(row)
    return found
