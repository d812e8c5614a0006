"""How a rank's process ends, and what the others are told."""

from __future__ import annotations

import signal
import time

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import wait_until_joining

# Rank 1 ends as it is told when all have reduced something once; the other waits for it.
PROGRAM = """
    import sys
    import threading
    import time

    import ringd

    context = ringd.Context()
    buffer = context.arena_alloc(4)

    def reduce(name="tensor"):
        spec = ringd.TensorSpec(name, data_type=ringd.DataType.UINT8, shape=(4,))
        (registration,) = context.register([spec])
        context.wait(context.submit(registration, buffer, buffer))

    reduce()
    how = sys.argv[1]
    if context.place.rank == 1:
        if how == "exception":
            raise ValueError("this rank has a fault")
        if how == "exception beside a waiting thread":
            threading.Thread(target=reduce, args=("never",)).start()
            time.sleep(0.3)
            raise ValueError("this rank has a fault")
        if how == "sys.exit":
            sys.exit(0)
    began = time.monotonic()
    try:
        reduce()
    except ringd.JobFailedError as error:
        print(f"failed: {error}")
        print(f"after {time.monotonic() - began:.2f} s")
    else:
        print("reduced")
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
@pytest.mark.parametrize("how", ["exception", "exception beside a waiting thread"])
def test_an_uncaught_exception_fails_the_job(cluster: Cluster, layout: list[int], how: str) -> None:
    cluster.start_nodes(len(layout))
    job = cluster.start_job(PROGRAM, layout, arguments=[how])
    codes = job.wait()
    assert codes[1] == 1, job.transcript()
    assert "this rank has a fault" in job.ranks[1].output
    assert "failed: " in job.ranks[0].output, job.transcript()
    assert "rank 1" in job.ranks[0].output, job.transcript()
    assert str(job.ranks[1].pid) in job.ranks[0].output, job.transcript()


def test_a_rank_that_leaves_in_order_is_not_taken_for_dead(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = cluster.start_job(PROGRAM, [2], arguments=["sys.exit"])
    codes = job.wait()
    assert codes == [0, 0], job.transcript()
    assert "failed: " in job.ranks[0].output, job.transcript()
    assert "left" in job.ranks[0].output, job.transcript()
    assert "killed" not in job.ranks[0].output, job.transcript()


@pytest.mark.parametrize("layout", [[3], [2, 1]], ids=str)
def test_a_normal_end_harms_nobody(cluster: Cluster, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout))
    # No shutdown() in it: the end of the program is one, and comes at different times.
    source = """
        import time
        import ringd.torch as hvd
        import torch

        hvd.init()
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [3.0] * 3
        time.sleep(0.4 * hvd.rank())
        print("done")
    """
    job = cluster.start_job(source, layout)
    job.expect_success()
    job.expect_output("done")
    for node in nodes:
        assert "has failed" not in node.output, node.output


def test_a_forked_child_is_not_the_rank(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    source = """
        import os, sys
        import ringd, ringd.torch as hvd
        import torch

        one = hvd.ProcessSet([1])
        hvd.init(process_sets=[one])
        place = hvd.rank(), hvd.size()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert not hvd.is_initialized()
                # What it takes to share work among a rank's DataLoader workers.
                assert (hvd.rank(), hvd.size()) == place, (hvd.rank(), hvd.size(), place)
                assert (hvd.local_rank(), hvd.local_size(), hvd.cross_size()) == (*place, 1)
                assert hvd.global_process_set.rank() == place[0] and one.included() == (place[0] == 1)
                assert hvd.global_process_set.included() and hvd.global_process_set.size() == 2
                assert hvd.global_process_set.ranks == [0, 1]
                hvd.allreduce(torch.ones(3))
            except ringd.FailedPreconditionError as error:
                # What it could not do, init, is not what it is told to do.
                assert "forked" in str(error) and "init() first" not in str(error), error
                code = 0
            sys.exit(code)  # runs what is to run at exit
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2.0] * 3
    """
    cluster.start_job(source, [2]).expect_success()


# Rank 1 comes late: what the others had submitted before an interrupt is complete after it.
WAIT_ALL = """
    import signal

    import ringd

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    context = ringd.Context()
    rank = context.place.rank
    specs = [ringd.TensorSpec(f"t{i}", data_type=ringd.DataType.UINT8, shape=(100,)) for i in range(50)]
    buffer = context.arena_alloc(100 * len(specs))

    def submit(some):
        numbers = context.register(some)
        return [
            context.submit(number, buffer + 100 * i, buffer + 100 * i) for i, number in enumerate(numbers)
        ]

    for step in range(3):
        operations = submit(specs)
        context.wait_all(operations)
        assert all(context.test(operation) for operation in operations)
        context.wait_all(operations)
    if rank == 1:
        signal.sigwait([signal.SIGUSR1])
        context.wait_all(submit(specs))
    else:
        operations = submit(specs)
        before = list(operations)
        try:
            context.wait_all(operations, 10)
        except ringd.DeadlineExceededError as error:
            assert "still in flight after" in str(error), error
        assert operations == before
        try:
            print("waiting", flush=True)
            context.wait_all(operations)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        context.wait_all(operations)
    other = ringd.TensorSpec("other", data_type=ringd.DataType.UINT8, shape=(100 + rank,))
    operations = submit([*specs[:3], other, *specs[3:5]])
    try:
        context.wait_all(operations)
    except ringd.InvalidArgumentError as error:
        assert "other" in str(error), error
        print("all ended:", [operation == 0 for operation in operations].index(True))
    for wrong in [("no list",), ([1.5],), ([0],), (None,), ()]:
        try:
            context.wait_all(*wrong)
        except (TypeError, ringd.NotFoundError):
            continue
        raise AssertionError(wrong)
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_waiting_for_a_list_survives_an_interrupt(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = cluster.start_job(WAIT_ALL, layout)
    job.ranks[0].expect_output("waiting")
    job.ranks[0].send(signal.SIGINT)
    job.ranks[0].expect_output("interrupted")
    job.ranks[1].send(signal.SIGUSR1)
    job.expect_success()
    assert all("all ended: 3" in rank.output for rank in job.ranks), job.transcript()


def test_ctrl_c_ends_a_wait(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    source = """
        import ringd.torch as hvd
        import torch

        hvd.init()
        print("waiting")
        if hvd.rank() == 1:
            import time
            time.sleep(100)
        hvd.allreduce(torch.ones(3), name="never")
    """
    job = cluster.start_job(source, [2])
    job.expect_output("waiting")
    job.ranks[0].send(signal.SIGINT)
    assert job.ranks[0].wait() in (-signal.SIGINT, 130), job.transcript()
    assert "KeyboardInterrupt" in job.ranks[0].output


# Rank 1 submits nothing until it is told to, so the other soon finds no room.
FULL = """
    import signal
    import sys

    import ringd

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    context = ringd.Context()
    (number,) = context.register([ringd.TensorSpec("t", data_type=ringd.DataType.UINT8, shape=(100,))])
    buffer = context.arena_alloc(100 * 64)
    room = int(sys.argv[1])
    operations = []

    def submit():
        address = buffer + 100 * len(operations)
        operations.append(context.submit(number, address, address))

    if context.place.rank == 1:
        signal.sigwait([signal.SIGUSR1])
    for _ in range(room):
        submit()
    if context.place.rank == 0:
        try:
            print("waiting", flush=True)
            submit()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    context.wait_all(operations)
    assert len(operations) == room
    submit()
    context.wait(operations.pop())
"""


@pytest.mark.parametrize(("layout", "room"), [([2], 4), ([1, 1], 16)], ids=["one node", "two nodes"])
def test_ctrl_c_ends_a_submissions_wait_for_room(cluster: Cluster, layout: list[int], room: int) -> None:
    cluster.start_nodes(len(layout), submission_ring_capacity=16)
    job = cluster.start_job(FULL, layout, arguments=[str(room)])
    job.ranks[0].expect_output("waiting")
    job.ranks[0].send(signal.SIGINT)
    job.ranks[0].expect_output("interrupted")
    job.ranks[1].send(signal.SIGUSR1)
    job.expect_success()


START = """
    import ringd

    with ringd.Context(start_timeout=120) as context:
        (number,) = context.register([ringd.TensorSpec("b", ringd.CollectiveKind.BARRIER)])
        context.wait(context.submit(number, 0, 0))
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_the_wait_for_a_rank_that_does_not_come_ends_with_an_interrupt(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.start_nodes(len(layout))
    (first,) = cluster.start_job(START, layout, job_id="interrupted", only_ranks=[0]).ranks
    wait_until_joining(cluster, first)
    began = time.monotonic()
    first.send(signal.SIGINT)
    assert first.wait() == -signal.SIGINT, first.output
    # Far below the start timeout, on a machine that is as busy as tests make it.
    assert time.monotonic() - began < 60
    assert "KeyboardInterrupt" in first.output, first.output
    # It has left nothing: the job can start anew.
    cluster.start_job(START, layout, job_id="interrupted").expect_success()


CREATE = """
    import signal

    import ringd

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    context = ringd.Context()
    if context.place.rank == 0:
        try:
            print("waiting", flush=True)
            context.create_communicator("both", [0, 1], timeout=120)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    signal.sigwait([signal.SIGUSR1])
    both = context.create_communicator("both", [0, 1], timeout=120)
    print("made", flush=True)
    spec = ringd.TensorSpec("b", ringd.CollectiveKind.BARRIER, communicator=both)
    (number,) = context.register([spec])
    context.wait(context.submit(number, 0, 0))
    context.destroy_communicator(both)
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_the_wait_for_the_ranks_of_a_communicator_ends_with_an_interrupt_and_may_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.start_nodes(len(layout))
    job = cluster.start_job(CREATE, layout)
    job.ranks[0].expect_output("waiting")
    time.sleep(0.3)
    job.ranks[0].send(signal.SIGINT)
    job.ranks[0].expect_output("interrupted")
    # Made while its first caller does not wait.
    job.ranks[1].send(signal.SIGUSR1)
    job.ranks[1].expect_output("made")
    job.ranks[0].send(signal.SIGUSR1)
    job.expect_success()


IN_A_BLOCK = """
    import sys

    import ringd

    with ringd.Context() as context:
        spec = ringd.TensorSpec("tensor", data_type=ringd.DataType.UINT8, shape=(4,))
        (registration,) = context.register([spec])
        buffer = context.arena_alloc(4)
        context.wait(context.submit(registration, buffer, buffer))
        if context.place.rank == 1:
            sys.exit(3)
        try:
            context.wait(context.submit(registration, buffer, buffer))
        except ringd.JobFailedError as error:
            print(f"failed: {error}")
"""


def test_sys_exit_out_of_a_context_s_block_leaves_in_order(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = cluster.start_job(IN_A_BLOCK, [2])
    assert job.wait() == [0, 3], job.transcript()
    assert "failed: " in job.ranks[0].output, job.transcript()
    assert "rank 1 left" in job.ranks[0].output, job.transcript()
    # Beside that, not in its place.
    assert "(shutdown; rank 1, pid" in job.ranks[0].output, job.transcript()
    assert "then exited with code 3" in job.ranks[0].output, job.transcript()
