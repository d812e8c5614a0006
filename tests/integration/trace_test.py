"""`ringctl trace`: the times of a job's operations on all ranks of all nodes, as Chrome trace
events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, JobRun, Node
from tests.integration.failures.events import start_trainers, wait_for_all
from tests.integration.processes import binary, clean_environment, wait_until
from tests.integration.trace_events import (
    ROUNDING_US,
    check_format,
    expect_in_order,
    expect_one_clock,
    finished,
    processes,
    slices_of,
)

# The same two tensors again and again, until the test says that it is enough.
STEPS = """
    import os

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        step = 0
        while True:
            first = trainer.submit("layer.weight", 1.0, count=40_000)
            second = trainer.submit("layer.bias", 1.0, count=100)
            # 1 goes on, 0 ends it, on all ranks in the same step.
            goes_on = trainer.submit("goes on", 0.0 if os.path.exists(os.environ["END"]) else 1.0, count=1)
            assert first.wait() == trainer.size
            assert second.wait() == trainer.size
            assert trainer.all_reduce_awaited("loss", 1.0) == trainer.size
            step += 1
            if step == 5:
                say("steady")
            if goes_on.wait() < trainer.size:
                break


    run(main)
"""

# On a communicator that matches by order, in each step: a sum, a broadcast, a barrier, and one
# operation in which the ranks differ.
STEPS_BY_ORDER = """
    import os
    from array import array

    import ringd
    from ringd import CollectiveKind as Kind
    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        context, rank, size = trainer.context, trainer.rank, trainer.size
        number = context.create_communicator("tp", range(size), matching="order")

        def begin(kind, count=0, **more):
            room = array("f", [1.0] * count)
            where = room.buffer_info()[0] if count else 0
            return room, context.submit_in_order(number, kind, where, where, count, **more)

        step = 0
        while True:
            summed, first = begin(Kind.ALLREDUCE, 40_000)
            _, second = begin(Kind.BROADCAST, 100, root_rank=step % size)
            _, third = begin(Kind.BARRIER)
            _, fourth = begin(Kind.ALLREDUCE, 10 + rank % 2)
            goes_on, fifth = begin(Kind.ALLREDUCE, 1, prescale=0.0 if step == 0 else 1.0)
            context.wait_all([first, second, third])
            assert summed[0] == size
            try:
                context.wait(fourth)
            except ringd.InvalidArgumentError:
                pass
            context.wait(fifth)
            ends = trainer.all_reduce("ends", 1.0 if os.path.exists(os.environ["END"]) else 0.0)
            step += 1
            if step == 5:
                say("steady")
            if ends:
                break


    run(main)
"""

# The last rank comes to its second operation only when it is too late for the trace.
LATE = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        trainer.all_reduce("warm-up")
        say("ready")
        while trainer.rank == trainer.size - 1 and not os.path.exists(os.environ["END"]):
            time.sleep(0.01)
        trainer.all_reduce("gradient")


    run(main)
"""

# Rank 1 fills its ring with rubbish, again and again; layout: proto/shm/session_segment.h,
# proto/trace.
HOSTILE = """
    import ctypes
    import threading
    import time
""" + STEPS.replace(
    "        trainer = Trainer()\n",
    """        trainer = Trainer()
        if trainer.rank == 1:
            spoiler = threading.Thread(target=spoil, args=(over := threading.Event(),))
            spoiler.start()
""",
).replace(
    "                break\n",
    """                break
        if trainer.rank == 1:
            # Later the segment is unmapped.
            over.set()
            spoiler.join()
""",
).replace(
    "    def main():",
    """    def spoil(over):
        with open("/proc/self/maps", encoding="ascii") as maps:
            line = next(line for line in maps if "ringd-session" in line)
        begin = int(line.split("-", 1)[0], 16)
        ring = begin + ctypes.c_uint64.from_address(begin + 72).value
        pattern = os.urandom(8192 * 32)
        while not over.is_set():
            for written in (1 << 63, (1 << 64) - 1, 5, 1 << 20):
                ctypes.memmove(ring + 64, pattern, len(pattern))
                ctypes.c_uint64.from_address(ring).value = written
                time.sleep(0.001)


    def main():""",
    1,
).replace("if step == 5", "if step == 50")

STAGES = ["submitted", "last_submitted", "ready", "started", "posted", "moved", "completed"]
SENT = ["posted", "first_sent", "last_sent", "moved"]
RECEIVED = ["posted", "first_received", "last_received", "moved"]
NAMES = {"layer.weight", "layer.bias", "goes on", "loss"}
# In a one-node job what fits into 32 bytes leaves no trace.
NAMES_OF_ONE_NODE = {"layer.weight", "layer.bias"}


def start_steps(
    cluster: Cluster, ranks_per_node: list[int], source: str = STEPS, event: str = "steady", **options: Any
) -> JobRun:
    """The job, when it has done some steps."""
    job = start_trainers(
        cluster, source, ranks_per_node, environment={"END": str(cluster.folder / "end")}, **options
    )
    wait_for_all(job.ranks, event)
    return job


def end_steps(cluster: Cluster, job: JobRun) -> None:
    (cluster.folder / "end").touch()
    job.expect_success()


def trace(cluster: Cluster, job: JobRun, node: Node | None = None, seconds: float = 1) -> dict[str, Any]:
    """A valid trace."""
    out = cluster.folder / "trace.json"
    result = cluster.ringctl(
        "trace", "--job", job.job_id, "--seconds", str(seconds), "--out", str(out), node=node
    )
    assert result.returncode == 0, result.stderr
    assert str(out) in result.stderr
    assert ("Not in it: operations of 32 bytes or less" in result.stderr) == (
        len({rank.node.name for rank in job.ranks}) == 1
    )
    loaded: dict[str, Any] = json.loads(out.read_text())
    check_format(loaded)
    assert [path.name for path in cluster.folder.glob("trace.json*")] == ["trace.json"]
    return loaded


@pytest.mark.parametrize("asked", [0, 1])
def test_operations_of_all_ranks_of_two_nodes_stand_on_one_clock(cluster: Cluster, asked: int) -> None:
    nodes = cluster.start_nodes(2)
    job = start_steps(cluster, [2, 2])
    loaded = trace(cluster, job, nodes[asked])
    rank_exchanges = cluster.rank_exchanges(job)
    end_steps(cluster, job)
    assert list(processes(loaded).values()) == [
        "ringd on node0",
        f"rank 0 (node0, pid {job.ranks[0].pid})",
        f"rank 1 (node0, pid {job.ranks[1].pid})",
        "ringd on node1",
        f"rank 2 (node1, pid {job.ranks[2].pid})",
        f"rank 3 (node1, pid {job.ranks[3].pid})",
    ]
    # Both nodes are this machine, so that their clocks are one.
    for node in loaded["otherData"]["nodes"]:
        assert node["answered"]
        assert node["clock_known"]
        assert abs(node["clock_offset_us"]) <= node["clock_uncertainty_us"] + ROUNDING_US
        assert node["clock_uncertainty_us"] < 100_000
    of_rank = [finished(slices_of(loaded, f"rank {rank} ", "operations")) for rank in range(4)]
    for operations in of_rank:
        assert len(operations) > 20
        needed = {"submitted", "ready", "started", "posted", "moved", "completed"}
        expect_in_order(operations, STAGES, needed)
        expect_in_order(operations, SENT, {"first_sent", "last_sent"})
        expect_in_order(operations, RECEIVED, {"first_received", "last_received"})
    tensors = {name for event in of_rank[0] for name in event["args"]["tensors"]}
    assert {"layer.weight", "layer.bias", "goes on"} <= tensors <= NAMES
    assert {event["args"]["algorithm"] for event in of_rank[0]} <= {"flat", "doubling", "ring"}
    expect_one_clock(loaded, of_rank)
    assert all(entry["open"] for entry in rank_exchanges)
    for rank in range(4):
        exchanged = slices_of(loaded, f"rank {rank} ", "rank exchange")
        assert {event["name"] for event in exchanged} == {"loss"}
        waits = slices_of(loaded, f"rank {rank} ", "waits")
        assert {event["name"] for event in waits} <= {f"wait for {name}" for name in NAMES}
        assert waits
    for node in nodes:
        for category in ("operations", "sends", "receives"):
            assert slices_of(loaded, f"ringd on {node.name}", category), category


def test_operations_that_are_matched_by_order_reach_the_same_stages(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    job = start_steps(cluster, [2, 2], STEPS_BY_ORDER)
    loaded = trace(cluster, job)
    end_steps(cluster, job)
    of_rank = []
    for rank in range(4):
        all_of_rank = finished(slices_of(loaded, f"rank {rank} ", "operations"))
        operations = [event for event in all_of_rank if event["name"].startswith("operation ")]
        assert all(event["name"].endswith(" of communicator 'tp'") for event in operations)
        failed = [event for event in operations if "error" in event["args"]]
        assert {int(event["name"].split()[1]) % 5 for event in failed} == {3}
        done = [event for event in operations if "error" not in event["args"]]
        assert all(event["args"]["operation"] == event["name"] for event in done)
        kinds = defaultdict(list)
        for event in done:
            kinds[int(event["name"].split()[1]) % 5].append(event)
        assert set(kinds) == {0, 1, 2, 4}
        assert min(len(events) for events in kinds.values()) >= 4
        needed = {"submitted", "ready", "started", "posted", "moved", "completed"}
        expect_in_order(done, STAGES, needed)
        expect_in_order(kinds[0], SENT, {"first_sent", "last_sent"})
        expect_in_order(kinds[0], RECEIVED, {"first_received", "last_received"})
        of_rank.append(kinds[0])
        waits = slices_of(loaded, f"rank {rank} ", "waits")
        assert any(event["name"].startswith("wait for operation ") for event in waits)
    expect_one_clock(loaded, of_rank)


def test_ranks_of_one_node_are_seen_by_their_own_word(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = start_steps(cluster, [2])
    loaded = trace(cluster, job)
    end_steps(cluster, job)
    of_rank = [finished(slices_of(loaded, f"rank {rank} ", "operations")) for rank in range(2)]
    for operations in of_rank:
        assert len(operations) > 20
        expect_in_order(operations, ["submitted", "arrived", "completed"], {"arrived"})
        assert {event["args"]["tensors"][0] for event in operations} == NAMES_OF_ONE_NODE
    expect_one_clock(loaded, of_rank)
    reduces = [slices_of(loaded, f"rank {rank} ", "reduces") for rank in range(2)]
    assert {event["name"] for events in reduces for event in events} <= {"reduce layer.weight"}


def test_what_hangs_is_in_the_trace_although_it_began_before(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    job = start_steps(cluster, [1, 1], LATE, "ready")
    loaded = trace(cluster, job, seconds=0.5)
    end_steps(cluster, job)
    (waiting,) = [
        event for event in slices_of(loaded, "rank 0 ", "operations") if event["name"] == "gradient"
    ]
    assert waiting["args"]["unfinished"]
    assert waiting["dur"] > 300_000
    assert not [event for event in slices_of(loaded, "rank 1 ", "operations") if event["name"] == "gradient"]


def test_a_rank_that_writes_rubbish_spoils_its_own_rows_only(cluster: Cluster) -> None:
    node = cluster.start_nodes(1)[0]
    job = start_steps(cluster, [3], HOSTILE)
    loaded = trace(cluster, job)
    assert node.running()
    for rank in (0, 2):
        operations = finished(slices_of(loaded, f"rank {rank} ", "operations"))
        assert len(operations) > 20
        expect_in_order(operations, ["submitted", "completed"], set())
        assert {event["args"]["tensors"][0] for event in operations} == NAMES_OF_ONE_NODE
    end_steps(cluster, job)


def test_ctrl_c_and_the_jobs_end_write_what_there_is(cluster: Cluster) -> None:
    node = cluster.start_nodes(1)[0]
    job = start_steps(cluster, [2])
    environment = clean_environment() | {"RINGD_SOCKET": str(node.socket)}

    def begin(out: Path) -> subprocess.Popen[str]:
        command = [binary("ringctl"), "trace", "--job", job.job_id, "--seconds", "60", "--out", out, "--json"]
        return subprocess.Popen(
            [str(part) for part in command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = begin(cluster.folder / "first.json")
    second = begin(cluster.folder / "second.json")
    wait_until(lambda: len(list(cluster.folder.glob("*.json.*"))) == 2, "both have begun")
    # Long enough for an answer of each.
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(4)
    first.send_signal(signal.SIGINT)
    output, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert json.loads(output)["warnings"] == []
    end_steps(cluster, job)
    output, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    (warning,) = json.loads(output)["warnings"]
    assert warning.startswith("ended early: ")
    for name in ("first.json", "second.json"):
        loaded = json.loads((cluster.folder / name).read_text())
        check_format(loaded)
        assert slices_of(loaded, "rank 1 ", "operations")


def test_errors_say_what_is_wrong_before_anybody_waits(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = start_steps(cluster, [1], job_id="training")
    out = cluster.folder / "trace.json"
    unknown = cluster.ringctl("trace", "--job", "trainin", "--out", str(out))
    assert unknown.returncode == 1
    assert "did you mean training?" in unknown.stderr
    nowhere = cluster.ringctl("trace", "--job", "training", "--out", str(cluster.folder / "none" / "t.json"))
    assert nowhere.returncode == 1
    assert "none/t.json" in nowhere.stderr
    usage = cluster.ringctl("trace", "--job", "training")  # where to?
    assert usage.returncode == 2
    both = cluster.ringctl("trace", "--job", "training", "--out", "-", "--json")
    assert both.returncode == 2
    assert not out.exists()
    # There is only one job.
    piped = cluster.ringctl("trace", "--seconds", "0", "--out", "-")
    assert piped.returncode == 0, piped.stderr
    check_format(json.loads(piped.stdout))
    end_steps(cluster, job)
    unreachable = subprocess.run(
        [binary("ringctl"), "trace", "--job", "x", "--out", "-", "--socket", cluster.folder / "no.sock"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert unreachable.returncode == 3
    assert os.listdir(cluster.folder).count("trace.json") == 0
