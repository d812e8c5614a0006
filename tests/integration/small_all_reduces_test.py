"""Which all-reduces go through one node: as the job's nodes have tried, or as the user says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.processes import wait_until

PROGRAM = (Path(__file__).parent / "programs" / "ring.py").read_text()
NODES = 3
TRIED_BYTES = [64, 1024, 4096, 16384]
ATTEMPTS = 5


def run(cluster: Cluster) -> dict[str, Any]:
    """The figures of the link, which all nodes show alike, of a job that has done its
    all-reduces."""
    notes = cluster.folder / f"notes{len(cluster.jobs)}"
    notes.mkdir()
    job = cluster.start_job(PROGRAM, [1] * NODES, arguments=[str(notes), "1", "2"])
    figures: list[dict[str, Any]] = []

    def told() -> bool:
        assert all(rank.running() for rank in job.ranks), job.transcript()
        figures.clear()
        for node in cluster.nodes:
            shown = json.loads(cluster.ringctl("comms", "--plan", "--json", node=node).stdout)[
                "communicators"
            ]
            latest = [entry for entry in shown if entry["job_id"] == job.job_id]
            figures.extend(entry["plan"]["link"] for entry in latest if entry.get("plan", {}).get("link"))
        return len(figures) == NODES and all((notes / f"done{rank}").exists() for rank in range(NODES))

    wait_until(told, "a plan on every node")
    keys = ("flat_source", "flat_all_reduce_bytes", "tried", "tried_unix_seconds")
    assert all([entry[key] for key in keys] == [figures[0][key] for key in keys] for entry in figures)
    (notes / "end").touch()
    job.expect_success()
    return figures[0]


def test_small_all_reduces_are_tried_before_the_first_job_and_known_to_the_next(cluster: Cluster) -> None:
    cluster.start_nodes(NODES)
    first = cluster.nodes[0]
    # On a busy machine the trial may be late, or not have come far enough.
    for attempt in range(ATTEMPTS):
        figures = run(cluster)
        if figures["flat_source"] == "measured" or attempt == ATTEMPTS - 1:
            break
        assert first.terminate() == 0
        (cluster.folder / "node0.state" / "plans.json").unlink(missing_ok=True)
        first = cluster.restart(first)
    print(figures)
    assert figures["flat_source"] == "measured", first.output
    tried = figures["tried"]
    assert [int(entry["bytes"]) for entry in tried] == TRIED_BYTES[: len(tried)]
    assert all(entry["flat_us"] > 0 and entry["doubling_us"] > 0 for entry in tried)
    wins = tried[0]["flat_us"] * 1.05 <= tried[0]["doubling_us"]
    assert (int(figures["flat_all_reduce_bytes"]) > 0) == wins

    assert first.terminate() == 0
    cluster.restart(first)
    again = run(cluster)
    assert again["tried"] == tried
    assert again["tried_unix_seconds"] == figures["tried_unix_seconds"]
    assert again["flat_all_reduce_bytes"] == figures["flat_all_reduce_bytes"]


@pytest.mark.parametrize(
    ("settings", "source", "per_buffer"),
    [
        ({"flat_all_reduce_bytes": "8KiB"}, "setting", 4096),
        ({"flat_all_reduce_bytes": "0"}, "setting", 0),
        ({"measure_links": "false"}, "assumed", 16384),
    ],
)
def test_nothing_is_tried_where_it_is_switched_off_or_the_user_has_fixed_the_size(
    cluster: Cluster, settings: dict[str, object], source: str, per_buffer: int
) -> None:
    cluster.start_nodes(NODES, **settings)
    figures = run(cluster)
    assert figures["flat_source"] == source
    assert int(figures["flat_all_reduce_bytes"]) == per_buffer
    assert figures["tried"] == []
