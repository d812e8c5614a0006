"""In which order a job's ring passes through its nodes: it follows the measured links."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.processes import wait_until
from tests.integration.racks import Racks

PROGRAM = (Path(__file__).parent / "programs" / "ring.py").read_text()
NODES = 4
NODE_MBIT = 1000
BETWEEN_MBIT = 100
LEAST_GBIT = BETWEEN_MBIT / 1000 / 8
MOST_GBIT = BETWEEN_MBIT / 1000 * 1.5
ATTEMPTS = 5

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")


class TwoRacks(Cluster):
    """Four ringds whose ranks alternate between two racks."""

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(folder)
        self.racks = Racks(NODES, NODE_MBIT, BETWEEN_MBIT)
        try:
            self.start_nodes(NODES, **settings)
        except BaseException:
            self.end()
            raise

    def _start(self, name: str, settings: dict[str, object]) -> Node:
        node = int(name.removeprefix("node"))
        address = {"peer_address": f"{self.racks.address(node)}:0"}
        return Node(name, self.folder, settings | address, self.racks.inside(node))

    def end(self) -> None:
        try:
            super().end()
        finally:
            self.racks.close()

    def forget(self) -> None:
        """What the first node has learned about links."""
        assert self.nodes[0].terminate() == 0
        (self.folder / "node0.state" / "plans.json").unlink(missing_ok=True)
        self.restart(self.nodes[0])

    def run(self, mib: int = 1, count: int = 3) -> tuple[list[dict[str, Any]], list[float]]:
        """What each node shows of a job that has done its all-reduces, and how many seconds they
        took."""
        notes = self.folder / f"notes{len(self.jobs)}"
        notes.mkdir()
        job = self.start_job(PROGRAM, [1] * NODES, arguments=[str(notes), str(mib), str(count)])

        def done() -> bool:
            assert all(rank.running() for rank in job.ranks), job.transcript()
            return all((notes / f"done{rank}").exists() for rank in range(NODES))

        wait_until(done, "all-reduces")
        shown = []
        for node in self.nodes:
            text = self.ringctl("comms", "--plan", "--json", node=node).stdout
            shown += [entry for entry in json.loads(text)["communicators"] if entry["job_id"] == job.job_id]
        assert len(shown) == NODES
        self.text = self.ringctl("comms", "--plan").stdout
        (notes / "end").touch()
        job.expect_success()
        return shown, [float(line) for line in (notes / "times").read_text().split()]


@pytest.fixture
def two_racks() -> Iterator[Callable[..., TwoRacks]]:
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    made: list[TwoRacks] = []

    def make(**settings: object) -> TwoRacks:
        made.append(TwoRacks(folder, **settings))
        return made[-1]

    try:
        yield make
    finally:
        try:
            for cluster in made:
                cluster.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def rack(name: str) -> int:
    return int(name.removeprefix("node")) % 2


def crossings(ring: list[str]) -> int:
    """How often the ring takes the line between the racks."""
    return sum(rack(a) != rack(b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True))


def ring_of(shown: list[dict[str, Any]]) -> list[str]:
    """The ring, which is the same on all nodes."""
    for entry in shown:
        assert entry["ring"] == shown[0]["ring"]
        assert entry["ring_source"] == shown[0]["ring_source"]
    ring: list[str] = shown[0]["ring"]
    return ring


def rates_of(links: list[dict[str, Any]], *, same_rack: bool) -> list[float]:
    """What was measured between nodes of one rack, or of both, in Gbit/s."""
    return [
        link["gbit_per_second"] for link in links if (rack(link["from"]) == rack(link["to"])) == same_rack
    ]


def test_the_ring_crosses_a_slow_line_once_each_way(two_racks: Callable[..., TwoRacks]) -> None:
    cluster = two_racks()
    # On a busy machine a look may be late, or not to be believed: then the ring is that of the
    # ranks.
    for attempt in range(ATTEMPTS):
        shown, _ = cluster.run()
        ring = ring_of(shown)
        links = shown[0]["measured_links"]
        between, within = rates_of(links, same_rack=False), rates_of(links, same_rack=True)
        # Up to two pairs at a time share the line between the racks.
        is_right = bool(between) and (
            LEAST_GBIT < statistics.median(between) < MOST_GBIT
            and statistics.median(within) > 3 * statistics.median(between)
        )
        if (crossings(ring) == 2 and is_right) or attempt == ATTEMPTS - 1:
            break
        cluster.forget()
    print(ring, [(link["from"], link["to"], round(link["gbit_per_second"], 3)) for link in links])
    assert shown[0]["ring_source"] == "measured", cluster.nodes[0].output
    assert crossings(ring) == 2
    assert ring[0] == "node0"
    assert len(links) == NODES * (NODES - 1)
    assert sum(link["in_ring"] for link in links) == NODES
    assert all(link["latency_us"] > 0 for link in links)
    assert LEAST_GBIT < statistics.median(between) < MOST_GBIT
    assert statistics.median(within) > 3 * statistics.median(between)
    assert "follows the measured links" in cluster.text
    assert "IN THE RING" in cluster.text

    # The next job knows, also after a restart.
    kept = json.loads((cluster.folder / "node0.state" / "plans.json").read_text())["links"]
    assert len(kept) == len(links)
    assert cluster.nodes[0].terminate() == 0
    cluster.restart(cluster.nodes[0])
    shown, _ = cluster.run()
    assert ring_of(shown) == ring
    assert shown[0]["measured_links"] == links


@pytest.mark.parametrize("silently", [False, True])
def test_nodes_that_do_not_reach_each_other_keep_the_order_of_ranks(
    two_racks: Callable[..., TwoRacks], silently: bool
) -> None:
    cluster = two_racks()
    # No neighbours in the ring: the job needs nothing of the way between them.
    cluster.racks.separate(1, 3, silently)
    shown, _ = cluster.run()
    assert ring_of(shown) == ["node0", "node1", "node2", "node3"]
    assert shown[0]["ring_source"] == "ranks"
    cluster.nodes[0].expect_output("could not be measured")
    # The next job does not try.
    shown, _ = cluster.run()
    assert ring_of(shown) == ["node0", "node1", "node2", "node3"]
    assert cluster.nodes[0].output.count("could not be measured") == 1


@pytest.mark.parametrize(
    ("settings", "source", "expected"),
    [
        ({"measure_links": "false"}, "ranks", ["node0", "node1", "node2", "node3"]),
        ({"ring_order": "node3,node1"}, "setting", ["node0", "node2", "node3", "node1"]),
    ],
)
def test_nothing_is_measured_where_it_is_switched_off_or_the_user_has_fixed_the_ring(
    two_racks: Callable[..., TwoRacks], settings: dict[str, object], source: str, expected: list[str]
) -> None:
    cluster = two_racks(**settings)
    shown, _ = cluster.run()
    assert ring_of(shown) == expected
    misfit = "does not name node0, node2, which" if "ring_order" in settings else ""
    assert all(misfit in entry["ring_misfit"] for entry in shown)
    assert bool(shown[0]["ring_misfit"]) == bool(misfit)
    assert misfit in cluster.text
    if misfit:
        cluster.nodes[0].expect_output("ring_order does not name")
    told = [node.output.count("ring_order does not name") for node in cluster.nodes]
    assert told == [bool(misfit), 0, 0, 0]
    assert shown[0]["ring_source"] == source
    assert shown[0]["measured_links"] == []
    assert "IN THE RING" not in cluster.text
