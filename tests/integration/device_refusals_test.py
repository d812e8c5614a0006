"""What is wrong with a GPU, or with a tensor there, is said, and the job goes on where it can: on
emulated GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus, start_on_gpus
from tests.integration.failures.events import expect_words, parse_events


def error_of(job: JobRun, name: str = "refused") -> list[str]:
    return [event["text"] for event in parse_events(job.transcript(), name)]


REFUSED = """
    import os

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run, say_error


    def main():
        trainer = Trainer()
        try:
            trainer.context.device_open(0, int(os.environ["SLAB"]))
        except ringd.RingdError as error:
            say_error(error, "refused")
        # The job goes on.
        assert trainer.all_reduce("on the host") == trainer.size


    run(main)
"""


def test_without_nccl_the_rank_that_asks_for_a_gpu_hears_which_file_is_missing(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.settings |= {"nccl_library": "/no/such/libnccl.so.2", "device_launch": "engine"}
    cluster.start_nodes(2)
    job = cluster.start_job(REFUSED, [1, 1], environment=environment | {"SLAB": "65536"})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    expect_words(errors[0], "/no/such/libnccl.so.2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cuda_driver_version": 11000}, ["11.0", "libcuda.so.1"]),
        ({"cuda_without": "cuMemCreate"}, ["cuMemCreate", "libcuda.so.1"]),
        ({"cuda_devices": 0}, ["cuInit", "no CUDA-capable device"]),
    ],
    ids=["old", "without a function", "without a GPU"],
)
def test_a_driver_that_can_t_be_used_is_told_with_the_reason(
    cluster: Cluster, settings: dict[str, Any], words: list[str]
) -> None:
    environment = give_gpus(cluster, **settings)
    cluster.start_nodes(1)
    job = cluster.start_job(REFUSED, [2], environment=environment | {"SLAB": "65536"})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, *words)


@pytest.mark.parametrize("launcher", ["engine", "trainer"])
def test_who_is_to_launch_needs_stream_memory_operations(cluster: Cluster, launcher: str) -> None:
    environment = give_gpus(cluster, cuda_stream_memory_operations=0)
    cluster.start_nodes(1, device_launch=launcher)
    job = cluster.start_job(REFUSED, [2], environment=environment | {"SLAB": "65536"})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, "stream memory operations")


def test_a_slab_larger_than_the_gpu_is_refused_with_the_amounts(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_memory_mib=64)
    cluster.start_nodes(2)
    job = cluster.start_job(REFUSED, [1, 1], environment=environment | {"SLAB": str(1 << 30)})
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    expect_words(errors[0], "GPU-", "slab_bytes")


DISAGREE = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say_error


    def main():
        trainer = DeviceTrainer()
        try:
            if trainer.rank == 0:
                tensor = trainer.tensor("gradient", [1.0] * 4)
                operation = tensor.all_reduce()
                trainer.context.stream_wait(operation, trainer.stream)
                tensor.read()  # the stream goes on
                trainer.context.wait(operation)
            else:
                trainer.all_reduce("gradient")
        except ringd.InvalidArgumentError as error:
            say_error(error, "refused")
        tensor = trainer.tensor("other", [1.0] * 4)
        trainer.context.wait(tensor.all_reduce())
        assert tensor.read() == [2.0] * 4


    run(main)
"""


def test_ranks_that_disagree_host_or_device_hear_both(cluster: Cluster) -> None:
    job = start_on_gpus(cluster, DISAGREE, [1, 1])
    job.expect_success()
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, "gradient", "in device memory", "in host memory", "rank 0", "rank 1")


def test_ranks_of_one_node_that_disagree_host_or_device_lose_their_job(cluster: Cluster) -> None:
    job = start_on_gpus(cluster, DISAGREE, [2])
    assert job.wait() == [3, 3]
    for error in error_of(job, "error"):
        expect_words(error, "'gradient'", "rank 1 has it in host memory", "rank 0 on a GPU")


MISUSES = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run


    def refused(error, words, call, *arguments):
        try:
            call(*arguments)
        except error as caught:
            for word in words:
                assert word in str(caught), (word, str(caught))
        else:
            raise AssertionError(f"{words}: nothing was refused")


    def main():
        trainer = DeviceTrainer(slab_bytes=1 << 20)
        context, stream = trainer.context, trainer.stream
        tensor = trainer.tensor("gradient", [1.0] * 8)
        number, address = tensor.registration, tensor.address
        invalid = ringd.InvalidArgumentError
        refused(ringd.AlreadyExistsError, ["GPU"], context.device_open, 0, 1024)
        refused(ringd.ResourceExhaustedError, ["slab_bytes"], context.device_alloc, 1 << 30)
        # Where it is not, or not all.
        refused(invalid, ["gradient"], context.submit_on_stream, number, 4096, 4096, stream)
        beyond = address + (8 << 20)
        refused(invalid, ["gradient"], context.submit_on_stream, number, address, beyond, stream)
        refused(invalid, ["overlap"], context.submit_on_stream, number, address, address + 4, stream)
        refused(invalid, ["aligned"], context.submit_on_stream, number, address + 2, address + 2, stream)
        # By the other way.
        refused(invalid, ["ringd_submit_on_stream"], context.submit, number, address, address)
        refused(invalid, ["ringd_submit_on_stream"], context.submit_awaited, number, address, address)
        (host,) = context.register([ringd.TensorSpec("host", shape=(2,))])
        refused(invalid, ["ringd_submit"], context.submit_on_stream, host, address, address, stream)
        refused(ringd.NotFoundError, ["operation"], context.stream_wait, 4711, stream)
        spec = ringd.TensorSpec("m", shape=(2,), memory=2)
        refused(invalid, ["memory is 2"], context.register, [spec])
        # An operation that NCCL refuses ends with that on all ranks, and the job goes on.
        odd = trainer.tensor("odd", [1] * 16, "B", data_type=ringd.DataType.FLOAT8_E4M3)
        operation = odd.all_reduce()
        context.stream_wait(operation, stream)
        # What waits for it goes on, whoever looks first.
        odd.read()
        refused(invalid, ["'odd'"], context.wait, operation)
        context.wait(tensor.all_reduce())
        assert tensor.read() == [2.0] * 8


    run(main)
"""


def test_what_is_wrong_with_a_device_tensor_is_said_and_the_job_goes_on(cluster: Cluster) -> None:
    # Before 2.24 NCCL has no float8.
    start_on_gpus(cluster, MISUSES, [1, 1], nccl_version=22304).expect_success()
