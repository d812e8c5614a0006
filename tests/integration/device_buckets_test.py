"""Learned buckets of tensors on GPUs: replayed step after step, and what departs from them. On
emulated GPUs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.events import expect_words, wait_for_all, wait_for_event
from tests.integration.plans_test import communicator

pytestmark = pytest.mark.usefixtures("who_launches")

LAYOUTS = pytest.mark.parametrize("layout", [[1, 1], [2, 1], [2]], ids=str)

# What all programs begin with. `wait_until_told` ends when the test has made the note.
COMMON = """
    import os
    import signal
    import sys
    import time

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error

    trainer = DeviceTrainer()
    context, rank, size, stream = trainer.context, trainer.rank, trainer.size, trainer.stream
    is_last = rank == size - 1
    tensors = [trainer.tensor(f"gradient {i}", [float(i + rank)] * (100 + i)) for i in range(5)]


    def wait_until_told(note):
        say(note)
        deadline = time.monotonic() + 60
        while not os.path.exists(f"{sys.argv[1]}/{note}"):
            assert time.monotonic() < deadline, f"nobody has said {note}"
            time.sleep(0.01)


    def check(i):
        expected = float(sum(i + r for r in range(size)))
        assert tensors[i].read() == [expected] * (100 + i), (i, tensors[i].read()[:4], expected)


    def submit(tensor):
        # What is in it, without a copy to it: the emulated driver's wait until the stream is there.
        return context.submit_on_stream(tensor.registration, tensor.address, tensor.address, stream)


    def step():
        operations = [tensor.all_reduce() for tensor in tensors]
        for operation in operations:
            context.stream_wait(operation, stream)
        for i in range(len(tensors)):
            check(i)
        context.wait_all(operations)
"""


def start(cluster: Cluster, program: str, layout: Sequence[int]) -> tuple[JobRun, Path]:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    cluster.reap_as_launchers_do()
    notes = cluster.shared_memory / "notes"
    notes.mkdir()
    cluster.start_nodes(len(layout))
    arguments = [str(notes)]
    return cluster.start_job(
        COMMON + program, list(layout), environment=environment, arguments=arguments
    ), notes


def learned_and_others(cluster: Cluster) -> tuple[int, int]:
    """How many operations this node's ranks have had that were learned, and that were not."""
    shown = communicator(cluster)
    learned = int(shown.get("learned_operations", 0))
    return learned, int(shown["operations"]) - learned


REPLAYED = """
    def main():
        for _ in range(15):
            step()
        wait_until_told("learned")
        for _ in range(30):
            step()
        wait_until_told("replayed")


    run(main)
"""


@LAYOUTS
def test_a_step_that_returns_is_replayed_and_negotiates_no_more(cluster: Cluster, layout: list[int]) -> None:
    job, notes = start(cluster, REPLAYED, layout)
    wait_for_all(job.ranks, "learned")
    learned, others = learned_and_others(cluster)
    assert learned > 0
    (notes / "learned").touch()
    wait_for_all(job.ranks, "replayed")
    # One bucket holds all five tensors of a step.
    assert learned_and_others(cluster) == (learned + 30, others)
    (notes / "replayed").touch()
    job.expect_success()


WAITED_FOR_FIRST = """
    def main():
        for _ in range(15):
            step()
        # One rank has to see two results before it goes on; the others come as ever.
        operations = []
        for i, tensor in enumerate(tensors):
            if is_last and i == 2:
                context.wait(operations[0])
                context.wait(operations[1])
            operations.append(tensor.all_reduce())
        context.wait_all(operations[2 if is_last else 0:])
        for i in range(len(tensors)):
            check(i)
        for _ in range(15):
            step()
        wait_until_told("replayed")


    run(main)
"""


@LAYOUTS
def test_a_tensor_that_comes_only_after_others_breaks_its_bucket(cluster: Cluster, layout: list[int]) -> None:
    job, notes = start(cluster, WAITED_FOR_FIRST, layout)
    wait_for_all(job.ranks, "replayed")
    last = communicator(cluster, cluster.nodes[len(layout) - 1])
    assert int(last["schedule_departures"]) >= 1
    # One without the break; more than two where a rank was late in a step that was learned from.
    assert int(last["learned_buckets"]) >= 2
    (notes / "replayed").touch()
    job.expect_success()


RESHAPED = """
    def main():
        for _ in range(15):
            step()
        # On one rank another shape: that tensor fails on all, the others don't.
        if is_last:
            other = trainer.tensor("gradient 2", [1.0] * 7)
        operations = []
        for i, tensor in enumerate(tensors):
            operations.append((other if is_last and i == 2 else tensor).all_reduce())
        for i, operation in enumerate(operations):
            try:
                context.wait(operation)
                assert i != 2
            except ringd.RingdError as error:
                assert i == 2, (i, error)
                say_error(error, "disagreement")
        for i in (0, 1, 3, 4):
            check(i)
        for _ in range(15):
            step()
        # On all ranks another one.
        tensors[2] = trainer.tensor("gradient 2", [float(2 + rank)] * 102 + [0.0] * 5)
        operations = [tensor.all_reduce() for tensor in tensors]
        context.wait_all(operations)
        assert tensors[2].read() == [float(sum(2 + r for r in range(size)))] * 102 + [0.0] * 5
        for i in (0, 1, 3, 4):
            check(i)


    run(main)
"""


@LAYOUTS
def test_a_tensor_of_another_shape_breaks_its_bucket(cluster: Cluster, layout: list[int]) -> None:
    job, _ = start(cluster, RESHAPED, layout)
    texts = {event["text"] for event in wait_for_all(job.ranks, "disagreement")}
    assert len(texts) == 1
    expect_words(texts.pop(), "gradient 2", "[102]", "[7]")
    job.expect_success()


DIES = """
    def main():
        for _ in range(15):
            step()
        if is_last and sys.argv[2] == "before":
            tensors[0].all_reduce()
            wait_until_told("dies")
            os.kill(os.getpid(), signal.SIGKILL)
        if is_last:
            # All is launched everywhere, and waits for this stream.
            trainer.driver.hold_up(stream)
        operations = [submit(tensor) for tensor in tensors]
        say("in flight")
        if is_last:
            wait_until_told("dies")
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            for operation in operations:
                context.stream_wait(operation, stream)
            # The first may be in a bucket of its own, which rank 1 has filled.
            context.wait_all(operations)
        except ringd.RingdError as error:
            say_error(error, "lost")
        tensors[0].read()
        say("released")


    run(main)
"""


@pytest.mark.parametrize("when", ["before", "amid"])
@pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)
def test_a_rank_that_dies_in_a_replayed_step_is_named(cluster: Cluster, layout: list[int], when: str) -> None:
    program = DIES.replace("sys.argv[2]", repr(when))
    job, notes = start(cluster, program, layout)
    first, last = job.ranks[0], job.ranks[-1]
    # Who heard of the death before it has submitted all could not.
    wait_for_all(job.ranks[:-1], "in flight")
    wait_for_event(last, "dies")
    (notes / "dies").touch()
    lost = wait_for_event(first, "lost")
    expect_words(lost["text"], "rank 1", f"pid {last.pid}")
    wait_for_event(first, "released")
    assert last.wait() == -signal.SIGKILL


CHAIN = """
    def chain():
        for tensor in tensors:
            tensor.write()
        operations = []
        for tensor in tensors:
            operations.append(submit(tensor))
            context.stream_wait(operations[-1], stream)
        for i in range(len(tensors)):
            check(i)
        context.wait_all(operations)


    def main():
        if sys.argv[2] == "learned apart":
            for _ in range(10):
                chain()
        if sys.argv[2] == "learned together":
            for _ in range(10):
                step()
        wait_until_told("halted")
        chain()
        for _ in range(10):
            chain()


    run(main)
"""


@pytest.mark.parametrize("before", ["nothing", "learned apart", "learned together"])
@pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)
def test_what_a_stream_waits_for_is_not_fused_with_what_comes_after(
    cluster: Cluster, layout: list[int], before: str
) -> None:
    """The engine gets a whole chain at a time: each operation is behind the wait for the one
    before it."""
    program = CHAIN.replace("sys.argv[2]", repr(before))
    job, notes = start(cluster, program, layout)
    wait_for_all(job.ranks, "halted")
    engine = engine_of(job.ranks[-1])
    os.kill(engine, signal.SIGSTOP)
    (notes / "halted").touch()
    time.sleep(0.5)
    os.kill(engine, signal.SIGCONT)
    job.expect_success()
