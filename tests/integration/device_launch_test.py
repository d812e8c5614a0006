"""Whose process launches on a GPU what ringd schedules (device_launch), and what is particular
where it is the trainer's. On emulated GPUs."""

from __future__ import annotations

import time

import pytest

from tests.integration.cluster import Cluster
from tests.integration.device_refusals_test import REFUSED, error_of
from tests.integration.device_test import SUMS
from tests.integration.device_views_test import STAYS, devices_of
from tests.integration.emulated_gpus import give_gpus, has_opened, start_on_gpus
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.device_test import SUM, WAITS
from tests.integration.failures.events import (
    BUSY_S,
    expect_within,
    expect_words,
    parse_events,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.gpu_deaths import (
    expect_children_to_end,
    expect_killed_trainer,
    forking,
)


@pytest.mark.parametrize("mps", ["off", "on", "multiuser"])
def test_the_engine_launches_only_where_it_shares_the_gpu_with_the_trainer(
    cluster: Cluster, mps: str
) -> None:
    job = start_on_gpus(cluster, STAYS, [2], cuda_mps=mps)
    job.expect_output('"reduced"')
    expected = "trainer" if mps == "off" else "engine"
    assert {device["launched_by"] for device in devices_of(cluster)} == {expected}
    # An engine that does not launch has no context on the GPU, which would take its slices.
    assert has_opened("libcuda", engine_of(job.ranks[0])) == (expected == "engine")


def test_where_mps_serves_another_user_than_the_engine_s_the_trainer_launches(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_mps="on")
    cluster.start_nodes(1)
    # The server is the trainer's by the time the engine comes.
    job = cluster.start_job(STAYS, [1], environment=environment | {"RINGD_EMULATOR_CUDA_USER": "54321"})
    job.expect_output('"reduced"')
    assert [device["launched_by"] for device in devices_of(cluster)] == ["trainer"]
    expect_words(cluster.nodes[0].output, "rank 0 (pid", "launches")


def test_engine_and_trainers_launch_in_one_communicator(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(1, device_launch="engine")
    cluster.start_nodes(1, device_launch="trainer")
    job = cluster.start_job(SUMS, [1, 1], environment=environment)
    job.expect_success()


def test_trainers_of_engines_behind_the_file_wall_launch(cluster: Cluster) -> None:
    # Others may attach, so engines are walled in; trainers are not.
    cluster.settings |= {"allowed_users": "nobody", "device_launch": "trainer"}
    start_on_gpus(cluster, SUMS, [2, 1]).expect_success()


def test_without_nccl_in_the_trainer_its_rank_and_the_file_are_told(cluster: Cluster) -> None:
    environment = give_gpus(cluster) | {"SLAB": "65536", "RINGD_NCCL_LIBRARY": "/no/such/libnccl.so.2"}
    cluster.start_nodes(1, device_launch="trainer")
    job = cluster.start_job(REFUSED, [2], environment=environment)
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, "rank ", "(pid ", "/no/such/libnccl.so.2")


def test_a_trainer_that_says_that_nccl_blocks_is_refused(cluster: Cluster) -> None:
    environment = give_gpus(cluster) | {"SLAB": "65536", "NCCL_COMM_BLOCKING": "1"}
    cluster.start_nodes(1, device_launch="trainer")
    job = cluster.start_job(REFUSED, [1], environment=environment)
    job.expect_success()
    expect_words(error_of(job)[0], "NCCL_COMM_BLOCKING", "unset it")


EXITS = """
    import os
    import sys
    import threading

    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error

    import ringd


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        if not os.environ.get("FIRST"):
            trainer.context.wait(tensor.all_reduce())
        operation = tensor.all_reduce()
        say("in flight")
        if trainer.rank == 0:
            # C's exit handlers run, and nobody has closed the context.
            import ctypes
            import time

            time.sleep(float(os.environ.get("DELAY", "0.3")))
            say("exits")
            ctypes.CDLL(None).exit(7)
        try:
            trainer.context.wait(operation)
        except ringd.RingdError as error:
            say_error(error, "lost")


    run(main)
"""


def test_a_trainer_that_exits_amid_a_collective_is_not_held_up(cluster: Cluster) -> None:
    environment = give_gpus(cluster, nccl_faults="hang@1:3")
    cluster.start_nodes(2, device_launch="trainer")
    job = cluster.start_job(EXITS, [1, 1], environment=environment)
    exits = wait_for_event(job.ranks[0], "exits")
    lost = wait_for_event(job.ranks[1], "lost")
    expect_within([lost], exits["at"], 2.0)
    expect_words(lost["text"], "rank 0")
    assert job.ranks[0].wait() == 7
    again = cluster.start_job(SUM, [1, 1], environment=give_gpus(cluster))
    again.expect_success()


def test_a_trainer_whose_driver_hangs_exits_with_its_own_code(cluster: Cluster) -> None:
    environment = give_gpus(cluster, nccl_hang="ncclAllReduce") | {"FIRST": "1", "DELAY": "1"}
    cluster.start_nodes(2, device_launch="trainer")
    job = cluster.start_job(EXITS, [1, 1], environment=environment)
    exits = wait_for_event(job.ranks[0], "exits")
    begin = time.monotonic()
    assert job.ranks[0].wait() == 7
    assert time.monotonic() - begin < 6.0 + BUSY_S
    expect_within([wait_for_event(job.ranks[1], "lost")], exits["at"], 8.0)


def test_a_child_of_a_trainer_that_was_killed_keeps_nothing_open(cluster: Cluster) -> None:
    environment = give_gpus(cluster, nccl_faults="hang@1:3")
    cluster.reap_as_launchers_do()
    cluster.start_nodes(2, device_launch="trainer")
    job = cluster.start_job(forking(WAITS), [1, 1], environment=environment)
    wait_for_all(job.ranks, "in flight")
    time.sleep(0.5)
    expect_killed_trainer(job)
    (child,) = (event["child"] for event in parse_events(job.ranks[1].output, "in flight"))
    expect_children_to_end([child])


LOADS = """
    import ctypes

    from device_trainer import DeviceTrainer
    from trainer import run


    def load_kernel(driver, name):
        module = ctypes.c_void_p()
        image = f".version 8.0\\n.visible .entry {name}()".encode()
        driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        function = ctypes.c_void_p()
        driver.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))


    def main():
        trainer = DeviceTrainer()
        first, second = (trainer.tensor(name, [1.0] * 10) for name in ("first", "second"))
        for expected in (2.0, 2.0, 2.0):
            operations = [first.all_reduce(), second.all_reduce()]
            for operation in operations:
                trainer.context.stream_wait(operation, trainer.stream)
            # As an optimizer's kernels are, when they are first used.
            load_kernel(trainer.driver, "ringd_move_segments")
            assert first.read() == second.read() == [expected] * 10
            for operation in operations:
                trainer.context.wait(operation)


    run(main)
"""


def test_a_kernel_that_is_loaded_behind_a_wait_holds_nothing_up(cluster: Cluster) -> None:
    # NCCL's communicator comes about meanwhile, and what is launched is still to come.
    environment = give_gpus(cluster, cuda_lazy_loading=1)
    cluster.start_nodes(2, device_launch="trainer", engine_patience="5s")
    cluster.start_job(LOADS, [1, 1], environment=environment).expect_success()


CROSSWISE = """
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        tensors = [trainer.tensor(name, [1.0] * 10) for name in ("a", "b")]
        if trainer.rank == 1:
            tensors.reverse()
        begin = time.monotonic()
        operations = []
        for tensor in tensors:
            operations.append(tensor.all_reduce())
            trainer.context.stream_wait(operations[-1], trainer.driver.new_stream())
        for operation in operations:
            trainer.context.wait(operation)
        say("took", seconds=time.monotonic() - begin)


    run(main)
"""


DEPARTS = """
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        tensors = [trainer.tensor(name, [1.0] * 10) for name in ("a", "b", "c")]
        for _ in range(60):
            operations = [tensor.all_reduce() for tensor in tensors]
            for operation in operations:
                trainer.context.stream_wait(operation, trainer.stream)
                trainer.context.wait(operation)
        begin = time.monotonic()
        operation = tensors[0].all_reduce()
        trainer.context.stream_wait(operation, trainer.stream)
        say("waits", seconds=time.monotonic() - begin)
        trainer.context.wait(operation)


    run(main)
"""


def test_a_bucket_is_broken_whose_other_tensors_come_behind_a_wait(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(2, device_launch="trainer")
    job = cluster.start_job(DEPARTS, [1, 1], environment=environment)
    job.expect_success()
    for rank in job.ranks:
        # It would give up its wait for the launch after 5 s.
        assert wait_for_event(rank, "waits")["seconds"] < 4.5


def test_ranks_that_wait_crosswise_on_streams_go_on(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(2, device_launch="trainer")
    job = cluster.start_job(CROSSWISE, [1, 1], environment=environment)
    job.expect_success()
