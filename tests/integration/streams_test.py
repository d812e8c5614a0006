"""Over how many connections two nodes send: as many as are set, and what it brings over a long
line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import JobRun
from tests.integration.long_line import LongLine
from tests.integration.processes import wait_until
from tests.integration.shaped_line import ShapedLine, TwoLines
from tests.integration.two_ends import TwoEnds

PROGRAM = (Path(__file__).parent / "programs" / "ring.py").read_text()
# So a connection may have some 700 kB under way: in a round trip of 60 ms, a quarter of this line.
LONG_SEND_BYTES = 1 << 20
LONG_MBIT = 400
LONG_ONE_WAY_MS = 30
SHORT_MBIT = 400


class Streams(TwoEnds[LongLine | ShapedLine]):
    """Two ringds, and what they do with the line between them."""

    def start(self, mib: int, count: int) -> tuple[JobRun, Path]:
        """A job that does all-reduces of some size, and stays until its folder has the note
        `end`."""
        notes = Path(tempfile.mkdtemp(prefix="notes", dir=self.folder))
        job = self.start_job(PROGRAM, [1, 1], arguments=[str(notes), str(mib), str(count)])

        def done() -> bool:
            assert all(rank.running() for rank in job.ranks), job.transcript()
            return all((notes / f"done{rank}").exists() for rank in range(2))

        wait_until(done, "all-reduces", 150.0)
        return job, notes

    def link(self, node: int) -> dict[str, Any]:
        """What the node shows of the way to the other one."""
        text = self.ringctl("comms", "--json", node=self.nodes[node]).stdout
        (entry,) = (entry for entry in json.loads(text)["communicators"] if entry["state"] == "running")
        (link,) = entry["links"]
        return dict(link)


Start = Callable[..., Streams]


@pytest.fixture
def start() -> Iterator[Start]:
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    clusters: list[Streams] = []

    def make(line: LongLine | ShapedLine, **settings: object) -> Streams:
        clusters.append(Streams(folder, line, **settings))
        return clusters[-1]

    try:
        yield make
    finally:
        with contextlib.ExitStack() as ends:
            ends.callback(shutil.rmtree, folder, ignore_errors=True)
            for cluster in clusters:
                ends.callback(cluster.end)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")


@needs_root
def test_a_line_too_long_for_one_connection_carries_more_over_several(start: Start) -> None:
    cluster = start(LongLine(LONG_MBIT, LONG_ONE_WAY_MS, LONG_SEND_BYTES), streams_per_neighbour=1)
    seconds = {}
    for streams in (1, 4):
        if streams > 1:
            for node in list(cluster.nodes):
                node.terminate()
                cluster.restart(node, streams_per_neighbour=streams)
        job, notes = cluster.start(mib=16, count=6)
        link = cluster.link(0)
        assert link["bulk_connections"] == streams, link
        plan = cluster.ringctl("comms", "--plan").stdout
        assert f"node1 by {streams + 1} connections, {streams} of them for bulk\n" in plan, plan
        (notes / "end").touch()
        job.expect_success()
        seconds[streams] = min(float(time) for time in (notes / "times").read_text().split())
    assert seconds[4] < 0.7 * seconds[1], seconds


@needs_root
@pytest.mark.parametrize(
    ("backend", "setting", "connections", "bulk"),
    [("ucx", "auto", 1, 1), ("ucx", 3, 4, 3), ("tcp", "auto", 2, 1), ("tcp", 3, 4, 3)],
)
def test_as_many_connections_carry_bulk_as_are_set(
    start: Start, backend: str, setting: int | str, connections: int, bulk: int
) -> None:
    cluster = start(ShapedLine(SHORT_MBIT), backend=backend, streams_per_neighbour=setting)
    job, notes = cluster.start(mib=4, count=3)
    link = cluster.link(0)
    assert (link["connections"], link["bulk_connections"]) == (connections, bulk)
    assert link["transports"].startswith("tcp/"), link
    (notes / "end").touch()
    job.expect_success()


@needs_root
def test_bulk_takes_all_data_interfaces(start: Start) -> None:
    mib, count = 32, 4
    line = TwoLines(SHORT_MBIT)
    cluster = start(line, backend="tcp", data_interfaces="eth0,eth1", measure_links="false")
    job, notes = cluster.start(mib, count)
    link = cluster.link(0)
    assert (link["connections"], link["bulk_connections"]) == (3, 2)
    assert link["transports"] == "tcp/eth0,tcp/eth1", link
    # Of two nodes each sends the other half of the sum's inputs, and half of the sum.
    total = mib * count << 20
    for end in range(2):
        sent = {interface: line.sent_bytes(end, interface) for interface in ("eth0", "eth1")}
        assert sum(sent.values()) > total, sent
        assert min(sent.values()) > total // 4, sent
    (notes / "end").touch()
    job.expect_success()


@needs_root
def test_a_second_interface_that_leads_nowhere_is_done_without(start: Start) -> None:
    line = TwoLines(SHORT_MBIT)
    cluster = start(line, backend="tcp", data_interfaces="eth0,eth1")
    line.cut_second()
    job, notes = cluster.start(mib=4, count=3)
    link = cluster.link(0)
    assert (link["connections"], link["bulk_connections"]) == (2, 1)
    assert link["transports"] == "tcp/eth0", link
    (notes / "end").touch()
    job.expect_success()
