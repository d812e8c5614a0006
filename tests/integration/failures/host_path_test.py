"""Somebody dies, hangs or exits while tensors of GPUs are reduced in the host's memory: the others
hear who it was, and no stream waits for ever. On emulated GPUs."""

from __future__ import annotations

import signal
import time

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    parse_events,
    the_same_text,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.gpu_deaths import (
    expect_children_to_end,
    expect_killed_engine,
    expect_killed_ringd,
    expect_killed_trainer,
    expect_killed_trainer_beside_others,
    forking,
)

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
@pytest.mark.tells_exit
def test_a_trainer_killed_amid_an_operation_is_named_and_the_others_stream_goes_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout)
    expect_killed_trainer_beside_others(cluster, job)
    assert job.ranks[0].wait() == 0, job.transcript()


@LAYOUTS
def test_an_engine_killed_amid_an_operation_is_named_and_all_streams_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout)
    expect_killed_engine(job, lost_s=1.5, released_s=2.5)
    assert job.wait() == [0, 0], job.transcript()


@LAYOUTS
def test_a_ringd_killed_amid_an_operation_is_named_and_its_ranks_streams_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_waiting(cluster, layout)
    expect_killed_ringd(job, released_s=2.5)
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
    assert job.ranks[0].wait() == 7


TOLD = """
    import ctypes
    import threading
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error

    import ringd


    @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
    def at_end(code, nothing):
        time.sleep(1)  # behind the library's handler: threads hear of it


    def main():
        library = ctypes.CDLL(None)
        library.on_exit(at_end, None)
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        trainer.context.wait(tensor.all_reduce())
        if trainer.rank == 1:
            time.sleep(60)
        operation = tensor.all_reduce()

        def wait():
            try:
                trainer.context.wait(operation)
                say("told", text="OK")
            except ringd.RingdError as error:
                say_error(error, "told")

        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.3)
        library.exit(7)


    run(main)
"""


@LAYOUTS
def test_a_thread_that_waits_as_its_process_exits_is_not_told_that_all_is_well(
    cluster: Cluster, layout: list[int]
) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    cluster.start_nodes(len(layout), device_launch="host")
    job = cluster.start_job(TOLD, layout, environment=environment)
    expect_words(wait_for_event(job.ranks[0], "told")["text"], "this process ends")
    assert job.ranks[0].wait() == 7


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


@pytest.mark.parametrize("who_launches", ["engine", "trainer"])
def test_a_context_that_is_closed_before_a_launch_leaves_the_slab(
    cluster: Cluster, who_launches: str
) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(2, device_launch=who_launches)
    job = cluster.start_job(CLOSES, [1, 1], environment=environment)
    wait_for_event(job.ranks[0], "left")
    expect_words(wait_for_event(job.ranks[1], "lost")["text"], "rank 0")
    assert job.wait() == [0, 0], job.transcript()


def test_a_child_of_a_trainer_disturbs_nobody(cluster: Cluster) -> None:
    job = start_waiting(cluster, [1, 1], forking(WAITS))
    expect_killed_trainer(job)
    children = [event["child"] for rank in job.ranks for event in parse_events(rank.output, "in flight")]
    assert len(children) == 2
    expect_children_to_end(children)


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
