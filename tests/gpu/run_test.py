"""tests/gpu/run on emulated GPUs, with a bundle as another machine gets it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.harness import bundle as bundles
from tests.gpu.harness import check as checks
from tests.gpu.harness import deaths, figures, report
from tests.gpu.harness.bundle import Bundle
from tests.gpu.harness.check import Check, Findings
from tests.gpu.harness.checks import CHECKS
from tests.gpu.harness.correctness import check_correct
from tests.gpu.harness.libraries import find_emulators
from tests.gpu.harness.site import Nodes, Site
from tests.integration import bare_root
from tests.integration.cluster import Cluster, JobRun
from tests.integration.processes import ROOT, clean_environment

# Larger than any that the kernel gives.
NO_PID = 1 << 30
FIGURES = {check.name for check in CHECKS if check.name.startswith(("figures", "training"))}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundles.make(tmp_path_factory.mktemp("bundle"), emulators=True)


@pytest.fixture(scope="module")
def site(bundle: Bundle) -> Site:
    return Site(bundle, find_emulators(bundle), emulated=True)


def run(
    *arguments: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tests/gpu/run", *arguments],
        env={"PATH": "/usr/bin:/bin"} | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.timeout(300)
def test_every_check_but_the_figures_passes_on_emulated_gpus(bundle: Bundle, tmp_path: Path) -> None:
    result = run("--emulated", "--bundle", bundle.folder, "--out", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["emulated"] is True
    statuses = {outcome["name"]: outcome["status"] for outcome in written["outcomes"]}
    assert statuses == {check.name: "not run" if check.name in FIGURES else "passed" for check in CHECKS}
    markdown = (tmp_path / "RESULTS.md").read_text()
    assert "EMULATED" in markdown
    assert all(f"| {check.name} |" in markdown for check in CHECKS)


@pytest.mark.parametrize(
    ("found", "variables"),
    [
        ({"nccl_version": 22105}, {"RINGD_EMULATOR_NCCL_VERSION": "22105"}),
        ({"gpus": [{"compute_capability": "8.0"}]}, {"RINGD_EMULATOR_CUDA_COMPUTE_MAJOR": "8"}),
    ],
    ids=["NCCL of PyTorch 2.5", "A100"],
)
def test_what_this_nccl_or_gpu_does_not_reduce_is_expected_to_be_refused(
    site: Site, found: dict[str, Any], variables: dict[str, str]
) -> None:
    older = dataclasses.replace(
        site, libraries=dataclasses.replace(site.libraries, **found), variables=variables
    )
    assert site.reduces_float8
    assert not older.reduces_float8
    (refused,) = [fact for fact in check_correct(older).facts if "refused" in fact]
    assert refused == "broadcasts exact, all-reduces refused by NCCL: float8_e4m3, float8_e5m2"


def test_an_inherited_mps_or_network_of_nccl_s_counts_for_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    assert "NCCL_ALGO" not in clean_environment()
    cluster = Cluster(tmp_path)
    Nodes(dataclasses.replace(site, emulated=False), cluster, 1)
    assert not Path(cluster.environment["CUDA_MPS_PIPE_DIRECTORY"]).exists()
    assert cluster.environment["NCCL_NET"] == "Socket"
    assert cluster.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    under = dataclasses.replace(site, emulated=False, variables={"CUDA_MPS_PIPE_DIRECTORY": "/a/pipe"})
    Nodes(under, cluster, 1)
    assert cluster.environment["CUDA_MPS_PIPE_DIRECTORY"] == "/a/pipe"
    assert cluster.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"


def test_without_a_gpu_it_says_what_it_looked_for(bundle: Bundle, tmp_path: Path) -> None:
    missing = {"RINGD_CUDA_LIBRARY": "/no/such/libcuda.so.1"}
    result = run("--bundle", bundle.folder, "--out", tmp_path, environment=missing)
    assert result.returncode == 2
    assert "no GPU" in result.stderr
    assert "/no/such/libcuda.so.1" in result.stderr
    assert "/dev/nvidia*" in result.stderr
    assert not (tmp_path / "RESULTS.md").exists()


def test_without_a_bundle_it_says_how_to_make_one(tmp_path: Path) -> None:
    result = run("--emulated", "--bundle", tmp_path, "--out", tmp_path)
    assert result.returncode == 2
    assert "tests/gpu/bundle" in result.stderr


def test_a_check_that_hangs_ends_at_its_limit_and_leaves_nothing_behind(site: Site) -> None:
    hanging = site.with_variables({"RINGD_EMULATOR_NCCL_FAULTS": "hang@1:3"})
    begin = time.monotonic()
    outcome = checks.run(Check("hanging", "", check_correct, 6), hanging, begin + 60)
    assert outcome.status == "failed"
    assert "6 s" in outcome.reason
    assert time.monotonic() - begin < 40
    assert "== ringd node0" in outcome.log


def test_a_wrong_sum_fails_the_check_with_the_tensors_name(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Path(__file__).parent / "programs"
    for program in programs.glob("*.py"):
        text = program.read_text()
        if program.name == "element_types.py":
            right = "total / len(column)"
            assert right in text
            text = text.replace(right, f"{right} + 1")
        (tmp_path / program.name).write_text(text)
    monkeypatch.setattr("tests.gpu.harness.site.PROGRAMS", tmp_path)
    outcome = checks.run(Check("wrong", "", check_correct, 60), site, time.monotonic() + 100)
    assert outcome.status == "failed"
    assert "wrong results" in outcome.reason
    assert "AVERAGE" in outcome.reason


def test_a_death_that_nobody_hears_of_fails_its_check(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "START_S", 10.0)

    def nobody_dies(nodes: Nodes, job: JobRun) -> tuple[int, deaths.Survivors]:
        return NO_PID, [(job.ranks[0], [])]

    def nobody(site: Site) -> Findings:
        return Findings([deaths.die(site, "nobody", nobody_dies, held=1)])

    outcome = checks.run(Check("nobody", "", nobody, 60), site, time.monotonic() + 100)
    assert outcome.status == "failed"
    assert "event 'lost'" in outcome.reason


def test_a_check_without_time_left_fails_the_run() -> None:
    outcome = checks.run(CHECKS[0], None, time.monotonic())  # type: ignore[arg-type]
    assert outcome.status == "not run"
    assert results_of([outcome]).exit_code() == 1


def test_figures_come_from_turns_of_both_ranks(site: Site) -> None:
    rows = figures.measure(site, figures.WITHOUT_MPS, [("null", [1]), ("list", [5, 700, 3])], 0.2)
    assert [row["work"] for row in rows] == ["null", "list"]
    assert [row["bytes"] for row in rows] == [4, 4 * 708]
    for row in rows:
        assert row["turns"] >= 5
        assert row["ratio"] == pytest.approx(row["ringd_s"] / row["nccl_s"])


@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to enter a system of its own")
def test_the_bundle_is_all_that_a_system_with_python_lacks(bundle: Bundle, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ringd-bare-", dir="/tmp"))
    try:
        root = bare_root.make(bare_root.OWN_SUITE, folder / "root", ("coreutils", "dash"))
        assert root.foreign_libraries() == []
        command = [
            *("python3", "/opt/ringd/tests/gpu/run", "--emulated", "--only", "correct"),
            *("--bundle", "/opt/bundle", "--out", "/opt/out"),
        ]
        # The tree as it is checked out, without what is built.
        for part in ("tests/gpu", "tests/integration"):
            shutil.copytree(ROOT / part, root.folder / "opt/ringd" / part)
        (root.folder / "opt/out").mkdir()
        log = tmp_path / "log"
        started = root.start(log, command, binds={bundle.folder: "/opt/bundle"})
        try:
            assert started.wait(120) == 0, started.output
        finally:
            started.destroy()
        assert "1 passed, 0 failed" in started.output
    finally:
        shutil.rmtree(folder)


def results_of(outcomes: list[checks.Outcome]) -> report.Results:
    return report.Results("2026-01-02T03:04:05Z", False, {"GPU": "one"}, 7.0, outcomes)
