"""A trainer or an engine is killed amid a collective on GPUs: who it was is named within a second,
and no stream waits for ever. On emulated GPUs."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.events import (
    BUSY_S,
    expect_within,
    expect_words,
    the_same_text,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.gpu_deaths import (
    expect_killed_engine,
    expect_killed_ringd,
    expect_killed_trainer_beside_others,
)
from tests.integration.failures.undisturbed import UndisturbedJob
from tests.integration.processes import wait_until

pytestmark = pytest.mark.usefixtures("who_launches")

# The second collective hangs on one rank: it is on both GPUs when somebody dies.
WAITS = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error


    def main():
        trainer = DeviceTrainer()
        context, stream = trainer.context, trainer.stream
        tensor = trainer.tensor("gradient", [1.0] * 1000)
        context.wait(tensor.all_reduce())
        operation = tensor.all_reduce()
        say("in flight")
        try:
            # Where this process launches, this waits for the launch.
            context.stream_wait(operation, stream)
            context.wait(operation)
        except ringd.RingdError as error:
            say_error(error, "lost")
        # What was behind the wait runs: the stream was released.
        tensor.read()
        say("released")


    run(main)
"""


SUM = """
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        trainer.context.wait(tensor.all_reduce())
        assert tensor.read() == [float(trainer.size)] * 10


    run(main)
"""

LAYOUTS = pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)


def start_hanging(cluster: Cluster, layout: list[int]) -> JobRun:
    environment = give_gpus(cluster, cuda_devices=max(layout), nccl_faults="hang@1:3")
    cluster.reap_as_launchers_do()
    cluster.start_nodes(2)
    job = cluster.start_job(WAITS, layout, environment=environment)
    wait_for_all(job.ranks, "in flight")
    # The collective is on both GPUs by then.
    time.sleep(0.5)
    return job


@LAYOUTS
@pytest.mark.tells_exit
def test_a_trainer_killed_amid_a_collective_is_named_and_the_others_stream_goes_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_hanging(cluster, layout)
    expect_killed_trainer_beside_others(cluster, job, "'gradient'")


@LAYOUTS
def test_an_engine_killed_amid_a_collective_is_named_and_all_streams_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_hanging(cluster, layout)
    other = UndisturbedJob(cluster, [1, 1])
    expect_killed_engine(job, lost_s=1.0, released_s=2.0)
    assert other.finish() > 0


@LAYOUTS
def test_a_ringd_killed_amid_a_collective_is_named_and_its_ranks_streams_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    job = start_hanging(cluster, layout)
    expect_killed_ringd(job, released_s=2.0)


# More than half of a GPU's memory, twice.
AGAIN = """
    import os

    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer(slab_bytes=int(os.environ["SLAB_MIB"]) << 20)
        tensor = trainer.tensor("gradient", [7.0] * 1000)
        # What the slab had before is nobody's.
        assert tensor.read() == [0.0] * 1000
        trainer.context.wait(tensor.all_reduce())
        assert tensor.read() == [14.0] * 1000
        if os.environ.get("DIES") == str(trainer.rank):
            say("dies")
            os.abort()
        trainer.context.wait(trainer.tensor("last", [1.0]).all_reduce())


    run(main)
"""


def test_the_next_incarnation_gets_the_memory_of_a_rank_that_died(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_memory_mib=256) | {"SLAB_MIB": "130"}
    cluster.start_nodes(2)
    job = cluster.start_job(AGAIN, [1, 1], environment=environment | {"DIES": "1"}, job_id="again")
    wait_for_event(job.ranks[1], "dies")
    codes = job.wait()
    assert codes == [3, -signal.SIGABRT], job.transcript()
    again = cluster.start_job(AGAIN, [1, 1], environment=environment, job_id="again")
    again.expect_success()


@pytest.mark.one_user
def test_a_gpu_without_room_for_packing_is_told_with_the_setting(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_memory_mib=128) | {"SLAB_MIB": "100"}
    cluster.start_nodes(2)
    job = cluster.start_job(AGAIN, [1, 1], environment=environment)
    expect_words(the_same_text(wait_for_all(job.ranks, "error")), "GPU-", "fusion_threshold")


def lost_by_all(
    cluster: Cluster, faults: str, layout: Sequence[int] = (1, 1), **settings: Any
) -> tuple[str, float]:
    """What both ranks hear when something is wrong with their second collective, and after how many
    seconds."""
    environment = give_gpus(cluster, cuda_devices=max(layout), nccl_faults=faults)
    cluster.start_nodes(2, **settings)
    job = cluster.start_job(WAITS, list(layout), environment=environment)
    begins = [event["at"] for event in wait_for_all(job.ranks, "in flight")]
    lost = wait_for_all(job.ranks, "lost")
    expect_within(wait_for_all(job.ranks, "released"), max(event["at"] for event in lost), 1.0)
    return the_same_text(lost), max(event["at"] for event in lost) - max(begins)


@pytest.mark.one_user
@LAYOUTS
def test_an_asynchronous_error_of_nccl_is_told_to_all(cluster: Cluster, layout: list[int]) -> None:
    text, _ = lost_by_all(cluster, "error@1:3=3", layout)
    expect_words(text, "GPUs' communicator", "NCCL has failed")


@pytest.mark.one_user
@LAYOUTS
def test_a_collective_that_hangs_ends_at_the_operation_timeout(cluster: Cluster, layout: list[int]) -> None:
    text, seconds = lost_by_all(cluster, "hang@1:3", layout, operation_timeout="2s")
    assert 1.5 < seconds < 2.0 + BUSY_S
    expect_words(text, "'gradient'")


@pytest.mark.one_user
def test_a_driver_that_does_not_come_back_fails_the_job(cluster: Cluster, who_launches: str) -> None:
    environment = give_gpus(cluster, nccl_hang="ncclAllReduce")
    nodes = cluster.start_nodes(2, engine_patience="5s")
    other = UndisturbedJob(cluster, [1, 1])
    program = WAITS.replace("        context.wait(tensor.all_reduce())\n", "")
    job = cluster.start_job(program, [1, 1], environment=environment)
    begin = max(event["at"] for event in wait_for_all(job.ranks, "in flight"))
    engines = [engine_of(rank) for rank in job.ranks]
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, begin, 8.0)
    assert min(event["at"] for event in lost) - begin > 4.0
    who = "the engine on node" if who_launches == "engine" else ", which launches on GPU-"
    # Both nodes' drivers hang, so each rank may hear of the one that was noticed first on its node.
    for event in lost:
        expect_words(event["text"], who, "GPU-", "has not come back for 5 s: ")
    # The stream waits for what nobody can say any more.
    expect_within(wait_for_all(job.ranks, "released"), begin, 10.0)
    if who_launches == "engine":
        # It ends with its thread in that call.
        wait_until(lambda: not any(set(engines) & set(node.engines()) for node in nodes), "no engine")
    else:
        # So do trainers, whose exit is not held up.
        assert job.wait() == [0, 0], job.transcript()
    assert other.finish() > 0


@pytest.mark.one_user
def test_a_communicator_that_does_not_come_about_ends_at_the_start_timeout(cluster: Cluster) -> None:
    environment = give_gpus(cluster, nccl_faults="hang@1:init")
    cluster.start_nodes(2, start_timeout="3s")
    begin = time.monotonic()
    job = cluster.start_job(WAITS, [1, 1], environment=environment)
    errors = wait_for_all(job.ranks, "error")
    expect_within(errors, begin, 8.0)
    expect_words(the_same_text(errors), "GPUs' communicator")


LEAVES = """
    import sys

    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error

    import ringd


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        trainer.context.wait(tensor.all_reduce())
        operation = tensor.all_reduce()
        trainer.context.stream_wait(operation, trainer.stream)
        if trainer.rank == 0:
            trainer.context.close()
            tensor.read()
            say("left")
            return
        try:
            trainer.context.wait(operation)
        except ringd.RingdError as error:
            say_error(error, "lost")
        tensor.read()


    run(main)
"""


@pytest.mark.one_user
def test_a_rank_that_leaves_amid_a_collective_is_named_and_its_own_stream_goes_on(cluster: Cluster) -> None:
    environment = give_gpus(cluster, nccl_faults="hang@1:3")
    cluster.start_nodes(2)
    job = cluster.start_job(LEAVES, [1, 1], environment=environment)
    expect_words(wait_for_event(job.ranks[1], "lost")["text"], "rank 0", "left")
    wait_for_event(job.ranks[0], "left")
    job.expect_success()


LOST = """
    import ctypes
    import time

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say, say_error


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 1000)
        trainer.context.wait(tensor.all_reduce())
        operation = tensor.all_reduce()
        say("in flight")
        if trainer.rank == 1:
            time.sleep(0.5)
            {what}
        try:
            trainer.context.wait(operation)
        except ringd.RingdError as error:
            say_error(error, "lost")


    run(main)
"""
# CUDA_ERROR_ECC_UNCORRECTABLE, to all processes that use the GPU: the rank's engine, too.
DEVICE_FAILS = "trainer.driver._library.ringd_emulator_fail_device(trainer.context.place.local_rank, 214)"
# What a kernel does that touches an illegal address (700): under MPS all on the GPU are lost.
TRAINER_FAILS = """
            work = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(lambda *_: -700)
            trainer.driver._library.ringd_emulator_enqueue(ctypes.c_void_p(trainer.stream), work, None)
"""


@LAYOUTS
@pytest.mark.parametrize("way", ["GPU", "trainer under MPS"])
def test_a_gpu_that_is_lost_ends_its_job_and_the_next_one_has_an_engine_that_can_use_it(
    cluster: Cluster, layout: list[int], way: str
) -> None:
    under_mps = {} if way == "GPU" else {"cuda_mps": "multiuser"}
    environment = give_gpus(cluster, cuda_devices=max(layout), nccl_faults="hang@1:3", **under_mps)
    cluster.start_nodes(2)
    other = UndisturbedJob(cluster, [1, 1])
    program = LOST.replace("{what}", DEVICE_FAILS if way == "GPU" else TRAINER_FAILS)
    job = cluster.start_job(program, layout, environment=environment)
    begins = [event["at"] for event in wait_for_all(job.ranks, "in flight")]
    lost = wait_for_all(job.ranks, "lost")
    expect_within(lost, max(begins), 2.5)
    expect_words(the_same_text(lost), "GPU-")
    assert other.finish() > 0
    again = cluster.start_job(SUM, layout, environment=environment)
    again.expect_success()
