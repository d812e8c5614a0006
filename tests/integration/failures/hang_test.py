"""ringd hangs: its ranks are told so, whatever they wait for, and go on when it does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.integration.cluster import Cluster, Node, Rank
from tests.integration.failures.events import (
    BUSY_S,
    expect_words,
    start_trainers,
    wait_for_all,
    wait_for_event,
    wait_until_joining,
)
from tests.integration.failures.halted_thread import find_thread, halted_thread
from tests.integration.processes import wait_until

# The ranks but the last wait for the last, which waits for the test's word. CALL: how they submit.
WAITS = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        reduce = getattr(trainer, os.environ["CALL"])
        for _ in range(3):
            assert reduce("gradient") == trainer.size
        if trainer.rank == trainer.size - 1:
            say("late")
            while not os.path.exists(os.environ["GO"]):
                time.sleep(0.01)
        else:
            say("waits")
        assert reduce("gradient") == trainer.size


    run(main)
"""

# Nobody waits for anything.
COMPUTES = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("gradient") == trainer.size
        say("computes")
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        assert trainer.all_reduce("gradient") == trainer.size


    run(main)
"""

# Says what it describes to ringd, after a word of the test's.
REGISTERS = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        say("joined all")
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        assert trainer.all_reduce("gradient") == trainer.size


    run(main)
"""

# The first rank leaves at a word of the test's; the others then go on by themselves.
LEAVES = """
    import os
    import time

    from trainer import Trainer, run, say


    def wait_for(path):
        while not os.path.exists(path):
            time.sleep(0.01)


    def main():
        trainer = Trainer()
        if trainer.rank > 0:
            others = trainer.context.create_communicator("others", [1, 2])
        assert trainer.all_reduce("gradient") == trainer.size
        say("joined all")
        if trainer.rank == 0:
            wait_for(os.environ["GO"] + "0")
        else:
            wait_for(os.environ["GO"])
            assert trainer.all_reduce("apart", communicator=others) == 2
        trainer.context.close()


    run(main)
"""

# README: within 5 s; the rest is for a machine that has other things to do.
TOLD_WITHIN_S = 5.0 + BUSY_S


def warnings(rank: Rank) -> list[str]:
    return [line for line in rank.output.splitlines() if "has not answered" in line]


def expect_warning(rank: Rank, began: float, host: str | None = None) -> None:
    """The rank is told once that its ringd, which is stopped, does not answer."""
    wait_until(lambda: bool(warnings(rank)), f"{rank} is told that ringd hangs")
    assert time.monotonic() - began < TOLD_WITHIN_S
    words = [f"rank {rank.number} is waiting", f"pid {rank.node.pid}", host or rank.node.name]
    # Which process serves its job a rank learns when it has joined.
    expect_words(warnings(rank)[0], *words, *([] if host else ["stopped"]))


class Stop(Protocol):
    """Stops a ringd, and its engines unless `alone`. When that was."""

    def __call__(self, node: Node, alone: bool = False) -> float: ...


def signal_all(node: Node, number: signal.Signals) -> None:
    """Signals a ringd and its engines."""
    for engine in node.engines():
        with contextlib.suppress(ProcessLookupError):  # its job has ended meanwhile
            os.kill(engine, number)
    node.send(number)


@pytest.fixture
def stop() -> Iterator[Stop]:
    """All that were stopped go on when the test ends."""
    stopped: list[Node] = []

    def stop_node(node: Node, alone: bool = False) -> float:
        if alone:
            node.send(signal.SIGSTOP)
        else:
            signal_all(node, signal.SIGSTOP)
        stopped.append(node)
        return time.monotonic()

    yield stop_node
    for node in stopped:
        signal_all(node, signal.SIGCONT)


@pytest.mark.parametrize("call", ["all_reduce", "all_reduce_awaited"])
@pytest.mark.parametrize("layout", [[3], [2, 1]], ids=str)
def test_ranks_that_wait_are_told_and_go_on(
    cluster: Cluster, stop: Stop, layout: list[int], call: str
) -> None:
    nodes = cluster.start_nodes(len(layout), stall_warning="60s")
    go = cluster.folder / "go"
    job = start_trainers(cluster, WAITS, layout, environment={"GO": str(go), "CALL": call})
    *waiting, late = job.ranks
    wait_for_event(late, "late")
    wait_for_all(waiting, "waits")
    time.sleep(0.2)  # until they do
    # Of a job over two nodes also the one whose ranks wait for another node's.
    began = stop(nodes[0])
    for rank in waiting:
        if rank.node is nodes[0]:
            expect_warning(rank, began)
    assert not warnings(late)
    time.sleep(3)
    signal_all(nodes[0], signal.SIGCONT)
    assert all(len(warnings(rank)) == 1 for rank in waiting if rank.node is nodes[0])
    go.touch()
    job.expect_success()
    nodes[0].expect_output("ringd has not run for")


def serves(pid: int) -> bool:
    """Whether an engine serves a job, and does not stand ready."""
    with contextlib.suppress(AssertionError):
        return find_thread(pid, "ringd-progress") > 0
    return False


def test_an_engine_that_hangs_is_told_by_ringd_too(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1, stall_warning="60s")
    go = cluster.folder / "go"
    job = start_trainers(cluster, WAITS, [2], environment={"GO": str(go), "CALL": "all_reduce"})
    wait_for_event(job.ranks[1], "late")
    wait_for_event(job.ranks[0], "waits")
    (engine,) = (pid for pid in node.engines() if serves(pid))
    name = f"the engine of job '{job.job_id}' (pid {engine} on {node.name})"
    with halted_thread(engine, "ringd-progress"):
        expect_warning(job.ranks[0], time.monotonic())
        node.expect_output(f"{name} has stood still for 5 s")
    node.expect_output(f"{name} goes on, after at least")
    go.touch()
    job.expect_success()
    assert node.output.count("has stood still") == 1


@pytest.mark.parametrize("stopped", [0, 1])
def test_other_nodes_are_told_of_an_engine_that_hangs_and_wait_for_it(
    cluster: Cluster, stop: Stop, stopped: int
) -> None:
    """Also if it is the one that coordinates the job."""
    nodes = cluster.start_nodes(2)
    go = cluster.folder / "go"
    job = start_trainers(cluster, WAITS, [2, 2], environment={"GO": str(go), "CALL": "all_reduce"})
    wait_for_event(job.ranks[3], "late")
    wait_for_all(job.ranks[:3], "waits")
    began = stop(nodes[stopped])
    (other,) = (rank for rank in job.ranks[:3:2] if rank.node is not nodes[stopped])
    words = [f"rank {other.number} is waiting", f"ringd on {nodes[stopped].name} (rank"]
    wait_until(lambda: "does not answer" in other.output, f"{other} is told that ringd hangs")
    assert time.monotonic() - began < TOLD_WITHIN_S + 3
    expect_words(next(line for line in other.output.splitlines() if "does not answer" in line), *words)
    time.sleep(max(0.0, began + 12 - time.monotonic()))
    signal_all(nodes[stopped], signal.SIGCONT)
    go.touch()
    job.expect_success()


def test_a_short_halt_of_ringd_is_told_to_nobody(cluster: Cluster, stop: Stop) -> None:
    (node,) = cluster.start_nodes(1)
    go = cluster.folder / "go"
    job = start_trainers(cluster, WAITS, [2], environment={"GO": str(go), "CALL": "all_reduce"})
    wait_for_event(job.ranks[1], "late")
    wait_for_event(job.ranks[0], "waits")
    stop(node)
    time.sleep(0.3)
    signal_all(node, signal.SIGCONT)
    time.sleep(4)
    go.touch()
    job.expect_success()
    assert not any(warnings(rank) for rank in job.ranks)


def test_ranks_that_compute_hear_nothing(cluster: Cluster, stop: Stop) -> None:
    (node,) = cluster.start_nodes(1)
    go = cluster.folder / "go"
    job = start_trainers(cluster, COMPUTES, [2], environment={"GO": str(go)})
    wait_for_all(job.ranks, "computes")
    stop(node)
    time.sleep(6)
    # They need no ringd for this.
    go.touch()
    wait_for_all(job.ranks, "done")
    signal_all(node, signal.SIGCONT)
    job.expect_success()
    assert not any(warnings(rank) for rank in job.ranks)


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_ranks_that_wait_for_the_answer_to_a_call_are_told(
    cluster: Cluster, stop: Stop, layout: list[int]
) -> None:
    nodes = cluster.start_nodes(len(layout))
    go = cluster.folder / "go"
    job = start_trainers(cluster, REGISTERS, layout, environment={"GO": str(go)})
    wait_for_all(job.ranks, "joined all")
    began = stop(nodes[0])
    go.touch()
    expect_warning(job.ranks[0], began)
    signal_all(nodes[0], signal.SIGCONT)
    job.expect_success()


def test_a_call_is_told_of_a_ringd_that_hangs_while_its_engine_works(cluster: Cluster, stop: Stop) -> None:
    (node,) = cluster.start_nodes(1)
    go = cluster.folder / "go"
    job = start_trainers(cluster, REGISTERS, [2], environment={"GO": str(go)})
    wait_for_all(job.ranks, "joined all")
    began = stop(node, alone=True)
    go.touch()
    for rank in job.ranks:
        # It is not the engine.
        expect_warning(rank, began, node.name)
        assert "engine" not in warnings(rank)[0]
    node.send(signal.SIGCONT)
    job.expect_success()
    assert all(len(warnings(rank)) == 1 for rank in job.ranks)


@pytest.mark.one_user
@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_operations_go_on_without_a_ringd_that_hangs(cluster: Cluster, stop: Stop, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout), stall_warning="60s")
    go = cluster.folder / "go"
    job = start_trainers(cluster, WAITS, layout, environment={"GO": str(go), "CALL": "all_reduce"})
    wait_for_event(job.ranks[1], "late")
    wait_for_event(job.ranks[0], "waits")
    for node in nodes:
        stop(node, alone=True)
    time.sleep(6)
    go.touch()
    wait_for_all(job.ranks, "done")
    for node in nodes:
        node.send(signal.SIGCONT)
    job.expect_success()
    assert not any(warnings(rank) for rank in job.ranks)


@pytest.mark.parametrize("alone", [True, False], ids=["ringd", "with its engine"])
def test_who_leaves_while_ringd_hangs_is_not_taken_for_dead(
    cluster: Cluster, stop: Stop, alone: bool
) -> None:
    nodes = cluster.start_nodes(2)
    go = cluster.folder / "go"
    job = start_trainers(cluster, LEAVES, [1, 2], environment={"GO": str(go)})
    wait_for_all(job.ranks, "joined all")
    stop(nodes[0], alone)
    (cluster.folder / "go0").touch()
    assert job.ranks[0].wait() == 0
    signal_all(nodes[0], signal.SIGCONT)
    # Ranks that would have heard of a death within a second.
    time.sleep(3)
    go.touch()
    job.expect_success()


def test_a_rank_that_joins_is_told(cluster: Cluster, stop: Stop) -> None:
    (node,) = cluster.start_nodes(1)
    job = start_trainers(cluster, REGISTERS, [2], environment={"GO": os.devnull}, only_ranks=[0])
    (first,) = job.ranks
    wait_until_joining(cluster, first)
    # What ringd calls its node it says when the job begins.
    expect_warning(first, stop(node), socket.gethostname())


@pytest.mark.parametrize("call", ["all_reduce", "all_reduce_awaited"])
def test_an_operation_timeout_holds_also_while_ringd_hangs(cluster: Cluster, stop: Stop, call: str) -> None:
    (node,) = cluster.start_nodes(1, operation_timeout="6s", stall_warning="60s")
    job = start_trainers(cluster, WAITS, [3], environment={"GO": str(cluster.folder / "go"), "CALL": call})
    *waiting, late = job.ranks
    wait_for_event(late, "late")
    wait_for_all(waiting, "waits")
    began = stop(node)
    errors = wait_for_all(waiting, "error")
    for error in errors:
        assert 3 < error["at"] - began < 6 + BUSY_S
        words = ["operation timeout of 6 s", f"pid {node.pid}", node.name, "has not answered", "stopped"]
        expect_words(error["text"], *words)
