"""Communicators of some of a job's ranks: what they do side by side, and what is told when they
can't."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

PROGRAMS = Path(__file__).parent / "programs"

LATE = """
    import os, time
    import ringd
    from ringd import CollectiveKind, TensorSpec

    with ringd.Context() as context:
        rank = context.place.rank
        pair = context.create_communicator("pair", [0, 1]) if rank < 2 else None
        others = context.create_communicator("others", [1, 2]) if rank in (1, 2) else None
        print("ready", flush=True)
        # The pair waits for this rank; the others must not.
        while rank == 0 and not os.path.exists(os.environ["DONE"]):
            time.sleep(0.01)
        (mine,) = (
            context.register([TensorSpec("slow", CollectiveKind.BARRIER, communicator=pair)])
            if rank < 2
            else (0,)
        )
        waiting = context.submit(mine, 0, 0) if rank < 2 else None
        if others is not None:
            (fast,) = context.register([TensorSpec("fast", CollectiveKind.BARRIER, communicator=others)])
            for _ in range(200):
                context.wait(context.submit(fast, 0, 0))
            if rank == 1:
                assert not context.test(waiting)
                context.wait(context.submit(fast, 0, 0))
            else:
                context.wait(context.submit(fast, 0, 0))
                open(os.environ["DONE"], "w").close()
        if waiting is not None:
            context.wait(waiting)
        print("done", flush=True)
"""

GONE = """
    import os, time
    import ringd
    from ringd import CollectiveKind, TensorSpec

    with ringd.Context() as context:
        rank = context.place.rank
        pair = context.create_communicator("pair", [0, 1]) if rank < 2 else None
        whole = context.create_communicator("whole", [0, 1, 2])
        if rank == 2:
            raise SystemExit  # in order, and without a word about "whole"
        context.destroy_communicator(whole)
        for _ in range(200):
            try:
                context.create_communicator("whole", [0, 1])
                break
            except ringd.AlreadyExistsError:
                time.sleep(0.1)
        else:
            raise AssertionError("the name is not free")
        time.sleep(1.5)  # rank 2's departure is long ago by ringd's measure
        if rank == 1:
            context.destroy_communicator(pair)
            open(os.environ["DONE"], "w").close()
            while not os.path.exists(os.environ["TOLD"]):
                time.sleep(0.01)
            raise SystemExit
        while not os.path.exists(os.environ["DONE"]):
            time.sleep(0.01)
        try:
            (alone,) = context.register([TensorSpec("alone", CollectiveKind.BARRIER, communicator=pair)])
            context.wait(context.submit(alone, 0, 0))
        except ringd.RingdError as error:
            print("told:", error, flush=True)
        finally:
            open(os.environ["TOLD"], "w").close()
"""

REFUSED = """
    import ringd

    with ringd.Context() as context:
        rank = context.place.rank
        def told(name, ranks, timeout=20):
            try:
                context.create_communicator(name, ranks, timeout=timeout)
            except ringd.RingdError as error:
                print(type(error).__name__, error, flush=True)
        if rank < 2:
            told("unlike", [0, 1] if rank == 0 else [1, 0])
        if rank == 0:
            told("without me", [1, 2])
            told("nobody's", [0, 99])
            told("twice", [0, 0])
            told("late", [0, 1, 2], timeout=1)
        kept = context.create_communicator("kept", [0, 1, 2])
        told("kept", [0, 1, 2])
        try:
            context.destroy_communicator(0)
        except ringd.FailedPreconditionError as error:
            print("world:", error, flush=True)
        context.destroy_communicator(kept)
        try:
            context.destroy_communicator(kept)
        except ringd.NotFoundError as error:
            print("gone:", error, flush=True)
        print("done", flush=True)
"""

KILLED = """
    import time
    import ringd
    from ringd import CollectiveKind, TensorSpec

    context = ringd.Context()
    rank = context.place.rank
    pair = context.create_communicator("pair", [1, 2]) if rank else None
    if rank == 2:
        print("ready", flush=True)
        time.sleep(60)
    try:
        spec = TensorSpec("x", CollectiveKind.BARRIER, communicator=pair or 0)
        (number,) = context.register([spec])
        operation = context.submit(number, 0, 0)
        print("ready", flush=True)
        context.wait(operation)
    except ringd.RingdError as error:
        print("told:", error, flush=True)
"""

MANY = """
    import ringd, resource
    from ringd import CollectiveKind, TensorSpec

    with ringd.Context() as context:
        size = context.place.size
        made = [context.create_communicator(f"c{i}", range(size)) for i in range(200)]
        assert made == sorted(made) and len(set(made)) == 200
        numbers = context.register([TensorSpec("b", CollectiveKind.BARRIER, communicator=c) for c in made])
        for _ in range(3):
            context.wait_all([context.submit(number, 0, 0) for number in numbers])
        print("told", len(made), flush=True)
        for c in made:
            context.destroy_communicator(c)
        print("done", flush=True)
"""


def ranks_on(nodes: int) -> list[int]:
    """Three ranks, on one node or on one each."""
    return [3] if nodes == 1 else [1] * 3


@pytest.mark.parametrize("ranks_per_node", [[4], [1, 2, 3]])
def test_overlapping_communicators_work_side_by_side(cluster: Cluster, ranks_per_node: list[int]) -> None:
    cluster.start_nodes(len(ranks_per_node))
    job = cluster.start_job((PROGRAMS / "communicators.py").read_text(), ranks_per_node)
    job.expect_success()
    assert job.transcript().count("all is well") == sum(ranks_per_node)
    assert "has no communicator" in job.transcript()


@pytest.mark.parametrize("nodes", [1, 3])
def test_one_that_waits_for_a_rank_holds_up_no_other(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    job = cluster.start_job(LATE, ranks_on(nodes), environment={"DONE": str(cluster.folder / "done")})
    job.expect_success()
    assert job.transcript().count("done") == 3


@pytest.mark.parametrize("nodes", [1, 3])
def test_what_can_t_be_made_is_refused_with_the_reason(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    job = cluster.start_job(REFUSED, ranks_on(nodes))
    job.expect_success()
    words = job.transcript()
    assert (
        words.count("says ranks 0, 1, rank 1 says ranks 1, 0")
        + words.count("says ranks 1, 0, rank 0 says ranks 0, 1")
        == 2
    ), words
    for said in (
        "communicator 'without me': rank 0, which creates it, is not one of its ranks",
        "communicator 'nobody's': rank 99 is none of the job's 3",
        "communicator 'twice': rank 0 stands there twice",
        "DeadlineExceededError communicator 'late' (ranks 0, 1, 2) could not be made within 1 s: "
        "ranks 1, 2 have not asked",
        "AlreadyExistsError communicator 'kept': there is one of this name, 'kept' (ranks 0, 1, 2)",
        "world: the communicator of all ranks is there as long as the job",
        "gone: this rank has no communicator",
    ):
        assert said in words, (said, words)
    assert words.count("done") == 3


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_death_of_a_member_is_told_with_the_communicator(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    job = cluster.start_job(KILLED, ranks_on(nodes))
    for process in job.ranks:
        process.expect_output("ready")
    job.ranks[2].send(signal.SIGKILL)
    job.wait()
    words = job.transcript()
    assert words.count("told: rank 2") == 2, words
    # Its own node says what its ranks had in flight.
    assert nodes > 1 or "of communicator 'pair'" in words, words


@pytest.mark.parametrize("nodes", [1, 2])
def test_hundreds_are_there_at_once(cluster: Cluster, nodes: int) -> None:
    cluster.start_nodes(nodes)
    job = cluster.start_job(MANY, [2] if nodes == 1 else [1, 1])
    job.expect_output("told 200")
    job.expect_success()


@pytest.mark.parametrize("layout", [[3], [2, 1], [1, 1, 1]], ids=str)
def test_a_rank_that_has_left_long_ago_hides_nothing_of_others_communicators(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.start_nodes(len(layout))
    files = {name: str(cluster.folder / name.lower()) for name in ("DONE", "TOLD")}
    job = cluster.start_job(GONE, layout, environment=files)
    job.expect_success()
    told = [line for line in job.ranks[0].output.splitlines() if line.startswith("told:")]
    assert told, job.transcript()
    assert "rank 1 has destroyed communicator 'pair', but there tensor 'alone' waits" in told[0]
