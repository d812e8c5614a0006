"""Somebody dies, hangs or exits while tensors of GPUs are reduced in the host's memory: the others
hear who it was, and no stream waits for ever. On emulated GPUs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    parse_events,
    the_same_text,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.undisturbed import UndisturbedJob

# The last rank's source of the second operation does not come, so that all others wait for it.
WAITS = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error


    def main():
        trainer = DeviceTrainer()
        context, stream = trainer.context, trainer.stream
        tensor = trainer.tensor("gradient", [1.0] * 1000)
        context.wait(tensor.all_reduce())
        let_go = None
        if trainer.rank == trainer.size - 1:
            let_go = trainer.driver.hold_up(stream)
        operation = context.submit_on_stream(
            tensor.registration, tensor.address, tensor.address, stream
        )
        context.stream_wait(operation, stream)
        say("in flight")
        try:
            context.wait(operation)
        except ringd.RingdError as error:
            say_error(error, "lost")
        if let_go is not None:
            let_go()
        # What was behind the wait runs: the stream was released.
        tensor.read()
        say("released")


    run(main)
"""

LAYOUTS = pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)


def start_waiting(cluster: Cluster, layout: list[int], source: str = WAITS, **settings: object) -> JobRun:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    cluster.reap_as_launchers_do()
    cluster.start_nodes(2, device_launch="host", **settings)
    job = cluster.start_job(source, layout, environment=environment)
    wait_for_all(job.ranks, "in flight")
    time.sleep(0.3)
    return job


@LAYOUTS
def test_a_trainer_killed_amid_an_operation_is_named_and_the_others_stream_goes_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout)
    other = UndisturbedJob(cluster, [1, 1])
    survivor, victim = job.ranks
    begin = time.monotonic()
    victim.process.kill()
    lost = wait_for_event(survivor, "lost")
    expect_within([lost], begin, 1.0)
    expect_words(lost["text"], "rank 1", f"pid {victim.pid}", "signal 9")
    expect_within([wait_for_event(survivor, "released")], begin, 2.0)
    assert survivor.wait() == 0, job.transcript()
    assert other.finish() > 0


@LAYOUTS
def test_an_engine_killed_amid_an_operation_is_named_and_all_streams_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout)
    engine = engine_of(job.ranks[1])
    begin = time.monotonic()
    os.kill(engine, signal.SIGKILL)
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, begin, 1.5)
    expect_words(the_same_text(lost), f"pid {engine} on {job.ranks[1].node.name}", "killed by signal 9")
    expect_within(wait_for_all(job.ranks, "released"), begin, 2.5)
    assert job.wait() == [0, 0], job.transcript()


@LAYOUTS
def test_a_ringd_killed_amid_an_operation_is_named_and_its_ranks_streams_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout)
    node = job.ranks[1].node
    begin = time.monotonic()
    node.kill()
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, begin, 1.5)
    expect_words(lost[1]["text"], f"pid {node.pid}", node.name)
    expect_within(wait_for_all(job.ranks, "released"), begin, 2.5)
    assert job.wait() == [0, 0], job.transcript()


@LAYOUTS
def test_a_source_that_never_comes_ends_the_operation_at_its_timeout(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout, operation_timeout="2s")
    begin = max(event["at"] for event in parse_events(job.transcript(), "in flight"))
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, begin, 4.0)
    assert min(event["at"] for event in lost) - begin > 1.5
    expect_words(the_same_text(lost), "'gradient'", "rank 1")
    wait_for_all(job.ranks, "released")


EXITS = """
    import os
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error

    import ringd


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        trainer.context.wait(tensor.all_reduce())
        if trainer.rank == 0:
            operation = tensor.all_reduce()
            trainer.context.stream_wait(operation, trainer.stream)
            time.sleep(0.3)
            say("exits")
            # C's exit handlers run, and nobody has closed the context.
            import ctypes

            ctypes.CDLL(None).exit(7)
        try:
            trainer.context.wait(trainer.tensor("other", [1.0]).all_reduce())
        except ringd.RingdError as error:
            say_error(error, "lost")


    run(main)
"""


@LAYOUTS
def test_a_trainer_that_exits_amid_an_operation_is_not_held_up(cluster: Cluster, layout: list[int]) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    cluster.reap_as_launchers_do()
    cluster.start_nodes(2, device_launch="host")
    job = cluster.start_job(EXITS, layout, environment=environment)
    exits = wait_for_event(job.ranks[0], "exits")
    lost = wait_for_event(job.ranks[1], "lost")
    expect_within([lost], exits["at"], 2.0)
    expect_words(lost["text"], "rank 0")
    assert job.ranks[0].wait(3) == 7


CLOSES = """
    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error

    import ringd


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        trainer.context.wait(tensor.all_reduce())
        if trainer.rank == 0:
            let_go = trainer.driver.hold_up(trainer.stream)
            operation = trainer.context.submit_on_stream(
                tensor.registration, tensor.address, tensor.address, trainer.stream
            )
            trainer.context.stream_wait(operation, trainer.stream)
            trainer.context.close()
            # The stream still copies from and to what the context had.
            let_go()
            trainer.driver.synchronize(trainer.stream)
            say("left")
            return
        try:
            trainer.context.wait(trainer.tensor("gradient", [1.0] * 10).all_reduce())
        except ringd.RingdError as error:
            say_error(error, "lost")


    run(main)
"""


@LAYOUTS
def test_a_context_that_is_closed_leaves_its_streams_what_they_use(
    cluster: Cluster, layout: list[int]
) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    cluster.start_nodes(2, device_launch="host")
    job = cluster.start_job(CLOSES, layout, environment=environment)
    wait_for_event(job.ranks[0], "left")
    expect_words(wait_for_event(job.ranks[1], "lost")["text"], "rank 0")
    assert job.wait() == [0, 0], job.transcript()


FORKS = WAITS.replace(
    '        say("in flight")\n',
    """        import os
        import time

        child = os.fork()
        if child == 0:
            time.sleep(3)
            # What libc's exit handlers do here is not the parent's affair.
            import ctypes

            ctypes.CDLL(None).exit(5)
        say("in flight", child=child)
""",
)


def test_a_child_of_a_trainer_disturbs_nobody(cluster: Cluster) -> None:
    job = start_waiting(cluster, [1, 1], FORKS)
    begin = time.monotonic()
    job.ranks[1].process.kill()
    lost = wait_for_event(job.ranks[0], "lost")
    expect_within([lost], begin, 1.0)
    expect_words(lost["text"], "rank 1", "signal 9")
    expect_within([wait_for_event(job.ranks[0], "released")], begin, 2.0)
    children = [event["child"] for rank in job.ranks for event in parse_events(rank.output, "in flight")]
    assert len(children) == 2
    deadline = time.monotonic() + 10
    for child in children:
        while Path(f"/proc/{child}/maps").exists() and Path(f"/proc/{child}/maps").read_text():
            assert time.monotonic() < deadline, "the child of a trainer does not end"
            time.sleep(0.05)


STOPPED = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 100_000)
        for step in range(40):
            operation = tensor.all_reduce()
            trainer.context.stream_wait(operation, trainer.stream)
            assert tensor.read()[0] == float(trainer.size)
            trainer.context.wait(operation)
            if step == 10:
                say("in the middle")


    run(main)
"""


@LAYOUTS
def test_a_trainer_that_was_stopped_for_a_while_goes_on(cluster: Cluster, layout: list[int]) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    cluster.start_nodes(2, device_launch="host")
    job = cluster.start_job(STOPPED, layout, environment=environment)
    wait_for_event(job.ranks[1], "in the middle")
    job.ranks[1].send(signal.SIGSTOP)
    time.sleep(1.5)
    job.ranks[1].send(signal.SIGCONT)
    job.expect_success()
