"""Communicators that match by order: results, what does not fit, who does not come."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.processes import wait_until

PROGRAMS = Path(__file__).parent / "programs"
LAYOUTS = [[2], [1, 1], [2, 1]]

DIFFERENT = """
    from array import array
    import ringd
    from ringd import CollectiveKind as Kind, DataType, ReduceOp

    def run(context, number, kind, count=0, **more):
        room = array("d", bytes(8 * max(count, 1)))
        where = room.buffer_info()[0]
        return room, context.submit_in_order(number, kind, where, where, count, **more)

    # What the last rank does, and what the others do.
    CASES = [
        ((Kind.ALLREDUCE, 1000), (Kind.ALLREDUCE, 1001)),
        ((Kind.ALLREDUCE, 3), (Kind.ALLREDUCE, 1000)),
        ((Kind.ALLREDUCE, 200_000), (Kind.ALLREDUCE, 3)),
        ((Kind.ALLREDUCE, 64, {"data_type": DataType.INT32}), (Kind.ALLREDUCE, 64)),
        ((Kind.ALLREDUCE, 64, {"op": ReduceOp.MAX}), (Kind.ALLREDUCE, 64)),
        ((Kind.BROADCAST, 10, {"data_type": DataType.INT64}), (Kind.ALLREDUCE, 1000)),
        ((Kind.BROADCAST, 500, {"root_rank": 0}), (Kind.BROADCAST, 500, {"root_rank": 1})),
        ((Kind.BROADCAST, 500, {"root_rank": 1}), (Kind.BROADCAST, 500, {"root_rank": 0})),
        ((Kind.BARRIER,), (Kind.ALLREDUCE, 5)),
        ((Kind.ALLREDUCE, 0), (Kind.BARRIER,)),
        ((Kind.ALLREDUCE, 1000, {"prescale": 0.5}), (Kind.ALLREDUCE, 1000)),
        ((Kind.ALLREDUCE, 2, {"postscale": 4.0}), (Kind.ALLREDUCE, 2, {"postscale": 2.0})),
    ]

    with ringd.Context() as context:
        rank, size = context.place.rank, context.place.size
        number = context.create_communicator("tp", range(size), matching="order")
        begun = []
        for case in CASES:
            kind, *rest = case[0 if rank == size - 1 else 1]
            count = rest[0] if rest else 0
            begun.append(run(context, number, kind, count, **(rest[1] if len(rest) > 1 else {})))
            begun.append(run(context, number, Kind.ALLREDUCE, 7))  # which goes on
        for n, (room, operation) in enumerate(begun):
            try:
                context.wait(operation)
                print(f"fits {n}", flush=True)
            except ringd.InvalidArgumentError as error:
                print(f"told {n}:", error, flush=True)
        # All the same afterwards.
        mine = array("f", [1.0] * 100_000)
        where = mine.buffer_info()[0]
        context.wait(context.submit_in_order(number, Kind.ALLREDUCE, where, where, 100_000))
        assert mine == array("f", [float(size)] * 100_000)
        context.destroy_communicator(number)
        print("done", flush=True)
"""

LOCALLY_DIFFERENT = """
    from array import array
    import ringd
    from ringd import CollectiveKind as Kind

    with ringd.Context() as context:
        rank = context.place.rank
        number = context.create_communicator("tp", [0, 1, 2], matching="order")
        mine = array("f", bytes(400))
        where = mine.buffer_info()[0]
        operation = context.submit_in_order(number, Kind.ALLREDUCE, where, where, 50 + 50 * (rank == 1))
        try:
            context.wait(operation)
        except ringd.InvalidArgumentError as error:
            print("told:", error, flush=True)
"""

ABSENT = """
    import time
    from array import array
    import ringd
    from ringd import CollectiveKind as Kind

    context = ringd.Context(operation_timeout=4)
    rank, size = context.place.rank, context.place.size
    number = context.create_communicator("tp", range(size), matching="order")
    context.wait(context.submit_in_order(number, Kind.BARRIER))
    mine = array("f", bytes(4000))
    where = mine.buffer_info()[0]
    print("ready", flush=True)
    if rank == size - 1:
        time.sleep(60)
    try:
        # Whoever is late may hear of a death here.
        context.wait(context.submit_in_order(number, Kind.ALLREDUCE, where, where, 1000))
    except ringd.RingdError as error:
        print("told:", error, flush=True)
        try:
            context.destroy_communicator(number)
        except ringd.RingdError as error:
            print("not destroyed:", error, flush=True)
"""

LEFT = """
    import ringd
    from ringd import CollectiveKind as Kind

    context = ringd.Context()
    rank, size = context.place.rank, context.place.size
    number = context.create_communicator("tp", range(size), matching="order")
    context.wait(context.submit_in_order(number, Kind.BARRIER))
    if rank == size - 1:
        context.close()
    else:
        try:
            context.wait(context.submit_in_order(number, Kind.BARRIER))
        except ringd.RingdError as error:
            print("told:", error, flush=True)
"""

REFUSED = """
    import ringd
    from ringd import CollectiveKind as Kind, TensorSpec

    with ringd.Context() as context:
        rank = context.place.rank
        def told(what, call):
            try:
                call()
            except ringd.RingdError as error:
                print(what, type(error).__name__, error, flush=True)
        told("unlike", lambda: context.create_communicator(
            "unlike", [0, 1], matching="order" if rank else "name", timeout=20))
        ordered = context.create_communicator("tp", [0, 1], matching="order")
        named = context.create_communicator("dp", [0, 1])
        told("register", lambda: context.register([TensorSpec("x", shape=(3,), communicator=ordered)]))
        told("by name", lambda: context.submit_in_order(named, Kind.BARRIER))
        told("world", lambda: context.submit_in_order(0, Kind.BARRIER))
        told("kind", lambda: context.submit_in_order(ordered, 77))
        told("root", lambda: context.submit_in_order(ordered, Kind.BROADCAST, 64, 64, 1, root_rank=7))
        operation = context.submit_in_order(ordered, Kind.BARRIER)
        told("in use", lambda: context.destroy_communicator(ordered))
        context.wait(operation)
        context.destroy_communicator(ordered)
        print("done", flush=True)
"""


@pytest.mark.parametrize("ranks_per_node", [*LAYOUTS, [1, 1, 1]])
def test_operations_are_matched_by_order(cluster: Cluster, ranks_per_node: list[int]) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job((PROGRAMS / "matching_by_order.py").read_text(), ranks_per_node)
    job.expect_success()
    assert job.transcript().count("all is well") == sum(ranks_per_node)


@pytest.mark.parametrize("ranks_per_node", [*LAYOUTS, [1, 1, 1]])
def test_what_does_not_fit_ends_on_all_ranks_with_what_they_submitted(
    cluster: Cluster, ranks_per_node: list[int]
) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job(DIFFERENT, ranks_per_node)
    job.expect_success()
    words = job.transcript()
    size = sum(ranks_per_node)
    for case in range(12):
        assert words.count(f"told {2 * case}: operation {2 * case} of communicator 'tp': rank 0") == size, (
            words
        )
        assert words.count(f"fits {2 * case + 1}\n") == size, words
    for number, said in (
        (0, ("float32 [1000]", "float32 [1001]")),
        (6, ("int32 [64]", "float32 [64]")),
        (8, ("max", "sum")),
        (10, ("broadcast", "int64 [10]", "allreduce", "float32 [1000]")),
        (12, ("root rank 0", "root rank 1")),
        (16, ("barrier", "float32 [5]")),
        (20, ("float32 [1000] prescale 0.5", "float32 [1000] prescale 1")),
        (22, ("postscale 4", "postscale 2")),
    ):
        lines = [line for line in words.splitlines() if f"told {number}:" in line]
        assert len(lines) == size
        for line in lines:
            for word in said:
                assert word in line, (word, line)


def test_ranks_of_one_node_that_differ_are_told_as_those_of_several(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    job = cluster.start_job(LOCALLY_DIFFERENT, [2, 1])
    job.expect_success()
    words = job.transcript()
    assert words.count("told: operation 0 of communicator 'tp': rank 0") == 3, words
    assert words.count("float32 [100]") == 3, words


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_who_does_not_come_is_named_when_the_time_is_over(
    cluster: Cluster, ranks_per_node: list[int]
) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job(ABSENT, ranks_per_node)
    for process in job.ranks:
        process.expect_output("ready")
    size = sum(ranks_per_node)
    for process in job.ranks[:-1]:
        process.expect_output("told:")
    job.ranks[-1].send(signal.SIGKILL)
    job.wait()
    words = job.transcript()
    assert words.count("operation 1") >= size - 1, words
    assert words.count(f"rank {size - 1}") >= size - 1, words
    assert words.count("has not submitted 'operation 1'") >= size - 1, words


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_the_death_of_a_rank_is_told(cluster: Cluster, ranks_per_node: list[int]) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job(ABSENT.replace("operation_timeout=4", ""), ranks_per_node)
    for process in job.ranks:
        process.expect_output("ready")
    job.ranks[-1].send(signal.SIGKILL)
    job.wait()
    words = job.transcript()
    size = sum(ranks_per_node)
    assert words.count(f"told: rank {size - 1}") == size - 1, words
    assert words.count(f"not destroyed: rank {size - 1}") == size - 1, words


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_a_rank_that_leaves_ends_what_waits_for_it(cluster: Cluster, ranks_per_node: list[int]) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job(LEFT, ranks_per_node)
    job.expect_success()
    words = job.transcript()
    size = sum(ranks_per_node)
    assert words.count(f"told: rank {size - 1} left") == size - 1, words


@pytest.mark.parametrize("ranks_per_node", LAYOUTS[:2])
def test_what_goes_by_name_and_what_by_order_is_not_mixed_up(
    cluster: Cluster, ranks_per_node: list[int]
) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job(REFUSED, ranks_per_node)
    job.expect_success()
    words = job.transcript()
    assert words.count("unlike InvalidArgumentError communicator 'unlike' (ranks 0, 1): rank ") == 2, words
    assert words.count("says that its operations are matched by ") == 2, words
    for said in (
        "register FailedPreconditionError tensor 'x': operations of communicator 'tp' are matched by order",
        "by name FailedPreconditionError operations of communicator ",
        "world FailedPreconditionError operations of communicator 0 are matched by name",
        "kind InvalidArgumentError",
        "root InvalidArgumentError tensor 'an operation on tp': root_rank is 7; it must be 0 to 1",
        "in use FailedPreconditionError an operation of communicator 'tp' has not been waited for",
    ):
        assert words.count(said) == 2, (said, words)
    assert words.count("done") == 2


@pytest.mark.parametrize("ranks_per_node", LAYOUTS[:2])
def test_ringctl_shows_operations_by_number(cluster: Cluster, ranks_per_node: list[int]) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job(ABSENT.replace("operation_timeout=4", ""), ranks_per_node)
    for process in job.ranks:
        process.expect_output("ready")
    assert "by order" in cluster.ringctl("comms").stdout
    wait_until(lambda: "operation 1" in cluster.ringctl("queues").stdout, "the operation in ringctl queues")
    job.ranks[-1].send(signal.SIGKILL)
    job.wait()
