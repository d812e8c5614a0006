"""What communicators cost that nobody uses: memory of the engine and of the ranks, descriptors,
connections. daemon/jobs/README.md has the figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.engines import engine_of
from tests.integration.processes import wait_until

PROGRAM = (Path(__file__).parent / "programs" / "idle_communicators.py").read_text()
COUNT = 500
#: Twice what is measured.
ENGINE_KIB = 24
RANK_KIB = {1: 40, 2: 4}


@dataclass
class Cost:
    """Of a process."""

    kib: float
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Cost:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        kib = next(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return cls(kib, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def next_stage(job: JobRun, notes: Path, stage: str) -> dict[str, float]:
    """What rank 0 says of it, when all ranks have come so far; then they wait for the note."""
    job.expect_output(f'"stage": "{stage}"')
    for rank in job.ranks:
        rank.expect_output(f'"stage": "{stage}"')
    line = next(line for line in job.ranks[0].output.splitlines() if f'"stage": "{stage}"' in line)
    said: dict[str, float] = json.loads(line)
    return said


def await_descriptors(pid: int, most: int) -> None:
    """When all ranks and nodes have heard that the last one is destroyed."""
    wait_until(lambda: Cost.of(pid).descriptors <= most, f"at most {most} descriptors of the engine")


@pytest.mark.parametrize("nodes", [1, 2])
def test_idle_communicators_cost_kilobytes_and_no_connections(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    notes = cluster.folder / "notes"
    notes.mkdir()
    ranks_per_node = [2] if nodes == 1 else [1, 1]
    job = cluster.start_job(PROGRAM, ranks_per_node, arguments=[str(notes), str(COUNT)])
    costs: dict[str, tuple[Cost, Cost]] = {}
    for stage in ("none", "made", "used", "destroyed"):
        said = next_stage(job, notes, stage)
        engine = engine_of(job.ranks[0])
        costs[stage] = Cost.of(engine), Cost.of(job.ranks[0].pid)
        if stage == "destroyed":
            await_descriptors(engine, costs["none"][0].descriptors)
        print(f"{nodes} nodes, {COUNT} communicators {stage}: {costs[stage]}, {said}")
        (notes / stage).touch()
    job.expect_success()

    (engine_before, rank_before), (engine_idle, rank_idle) = costs["none"], costs["made"]
    assert (engine_idle.kib - engine_before.kib) / COUNT < ENGINE_KIB, costs
    assert (rank_idle.kib - rank_before.kib) / COUNT < RANK_KIB[nodes], costs
    # On one node the memory that the ranks share; over several no connection before there is use.
    kept = COUNT if nodes == 1 else 0
    assert engine_idle.descriptors - engine_before.descriptors == kept, costs
    assert rank_idle.descriptors == rank_before.descriptors, costs
    if nodes > 1:
        assert costs["used"][0].descriptors - engine_before.descriptors >= 2 * COUNT, costs
