"""Tensors on GPUs that are reduced in the host's memory, without NCCL (device_launch = "host", or
NCCL is missing): who chooses that, and who is told. On emulated GPUs."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.device_test import SUMS
from tests.integration.device_views_test import STAYS, devices_of
from tests.integration.emulated_gpus import give_gpus, has_opened, start_on_gpus
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.events import expect_words

NO_NCCL = "/no/such/libnccl.so.2"
LAYOUTS = pytest.mark.parametrize("layout", [[2], [1, 1], [2, 1]], ids=str)


def warnings_of(job: JobRun) -> list[str]:
    return [line for line in job.transcript().splitlines() if "host memory, which is slow" in line]


@LAYOUTS
def test_where_nccl_is_missing_everywhere_the_host_path_is_taken_and_told_once(
    cluster: Cluster, layout: list[int]
) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout)) | {"RINGD_NCCL_LIBRARY": NO_NCCL}
    cluster.start_nodes(len(layout))
    job = cluster.start_job(SUMS, layout, environment=environment)
    job.expect_success()
    told = warnings_of(job)
    assert len(told) == sum(layout)
    for line in told:
        expect_words(line, "rank ", NO_NCCL)
    expect_words(cluster.nodes[0].output, "GPU tensors of rank 0", NO_NCCL)


def test_an_engine_under_mps_without_nccl_takes_the_host_path(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_mps="on")
    cluster.settings["nccl_library"] = NO_NCCL
    cluster.start_nodes(1)
    job = cluster.start_job(SUMS, [1], environment=environment)
    job.expect_success()
    expect_words(warnings_of(job)[0], NO_NCCL)


def test_a_ringd_that_shall_use_no_nccl_has_the_host_path(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.settings["nccl_library"] = ""
    cluster.start_nodes(2)
    job = cluster.start_job(SUMS, [1, 1], environment=environment)
    job.expect_success()
    expect_words(warnings_of(job)[0], "nccl_library is not set")


def test_what_was_asked_for_is_no_warning_and_opens_no_library(cluster: Cluster) -> None:
    environment = give_gpus(cluster) | {"RINGD_HOST_PATH": "1"}
    cluster.start_nodes(1)
    job = cluster.start_job(STAYS, [1], environment=environment)
    job.expect_output('"reduced"')
    assert not warnings_of(job)
    (rank,) = job.ranks
    assert has_opened("libcuda", rank.pid)
    assert not has_opened("libnccl", rank.pid)
    assert not has_opened("libcuda", engine_of(rank))


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_ringctl_comms_shows_the_host_path_and_the_reason(cluster: Cluster, layout: list[int]) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout)) | {"RINGD_NCCL_LIBRARY": NO_NCCL}
    cluster.start_nodes(len(layout))
    job = cluster.start_job(STAYS, layout, environment=environment)
    job.expect_output('"reduced"')
    devices = devices_of(cluster)
    assert [device["rank"] for device in devices] == list(range(layout[0]))
    for device in devices:
        assert device["launched_by"] == "host"
        assert device["gpu"].startswith("GPU-")
        expect_words(device["error"], NO_NCCL)
    text = " ".join(cluster.ringctl("comms").stdout.split())
    expect_words(text, "rank 0 on GPU-", "the host path", NO_NCCL)


SHARES = """
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [float(trainer.rank)] * 100)
        for _ in range(3):
            trainer.context.wait(tensor.all_reduce())
            assert tensor.read() == [float(sum(range(trainer.size)))] * 100


    run(main)
"""


@pytest.mark.parametrize("layout", [[3], [2, 2]], ids=str)
def test_several_ranks_share_one_gpu(cluster: Cluster, layout: list[int]) -> None:
    # NCCL before 2.30 refuses that.
    environment = give_gpus(cluster) | {"RINGD_TEST_GPUS": "1"}
    cluster.start_nodes(len(layout), device_launch="host")
    cluster.start_job(SHARES, layout, environment=environment).expect_success()


TYPES = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        context, rank, size = trainer.context, trainer.rank, trainer.size
        DataType, ReduceOp = ringd.DataType, ringd.ReduceOp
        # What NCCL has goes its way, in the same steps.
        gradient = trainer.tensor("gradient", [float(rank)] * 50)
        cases = [
            ("B", DataType.BOOL, ReduceOp.SUM, [rank == 1, 0, 1], [size > 1, 0, 1]),
            ("B", DataType.BOOL, ReduceOp.PRODUCT, [rank == 1, 0, 1], [size == 1 and rank == 1, 0, 1]),
            ("h", DataType.INT16, ReduceOp.SUM, [-rank, 300], [-sum(range(size)), 300 * size]),
            ("h", DataType.INT16, ReduceOp.MIN, [-rank, 7], [1 - size, 7]),
            ("h", DataType.INT16, ReduceOp.AVERAGE, [4 * rank], [4 * sum(range(size)) // size]),
            ("H", DataType.UINT16, ReduceOp.MAX, [rank, 60000], [size - 1, 60000]),
            ("H", DataType.UINT16, ReduceOp.PRODUCT, [2, 3], [2**size, 3**size]),
        ]
        for step in range(3):
            operations, tensors = [gradient.all_reduce()], []
            for i, (code, data_type, op, values, _) in enumerate(cases):
                tensors.append(
                    trainer.tensor(
                        f"{i}, {step}", [int(v) for v in values], code, data_type=data_type, op=op
                    )
                )
                operations.append(tensors[-1].all_reduce())
            for operation in operations:
                context.stream_wait(operation, trainer.stream)
            for tensor, (_, _, _, _, expected) in zip(tensors, cases, strict=True):
                assert tensor.read() == [int(v) for v in expected], (tensor.read(), expected)
            context.wait_all(operations)
            assert gradient.read() == [float(sum(range(size)))] * 50
        say("types are right")


    run(main)
"""


@pytest.mark.parametrize("launcher", ["engine", "trainer"])
@LAYOUTS
def test_types_that_nccl_does_not_reduce_take_the_host_path(
    cluster: Cluster, layout: list[int], launcher: str
) -> None:
    cluster.settings["device_launch"] = launcher
    job = start_on_gpus(cluster, TYPES, layout)
    job.expect_success()
    told = warnings_of(job)
    assert len(told) == sum(layout)
    expect_words(told[0], "NCCL does not reduce bool")


REFUSED = """
    import os

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run, say_error


    def main():
        trainer = Trainer()
        try:
            trainer.context.device_open(0, 1 << 20)
        except ringd.RingdError as error:
            say_error(error, "refused")
        assert trainer.all_reduce("on the host") == trainer.size


    run(main)
"""


@pytest.mark.parametrize("program", [SUMS, TYPES, SHARES], ids=["sums", "types", "shares"])
@LAYOUTS
def test_a_gpu_without_stream_memory_operations_takes_the_host_path(
    cluster: Cluster, layout: list[int], program: str
) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout), cuda_stream_memory_operations=0)
    cluster.start_nodes(len(layout))
    job = cluster.start_job(program, layout, environment=environment)
    job.expect_success()
    told = warnings_of(job)
    assert len(told) == sum(layout)
    expect_words(told[0], "stream memory operations")


FULL = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer(slab_bytes=32 << 20)
        context, size = trainer.context, trainer.size
        large = trainer.tensor("large", [1.0] * (5 << 20))
        try:
            large.all_reduce()
        except ringd.ResourceExhaustedError as error:
            assert "arena_bytes" in str(error) and "'large'" in str(error), str(error)
        else:
            raise AssertionError("nothing was refused")
        # What fits goes on, again and again, of different sizes.
        for count in (1 << 20, 1000, (1 << 20) + 99, 500_000):
            tensor = trainer.tensor(f"of {count}", [1.0] * count)
            context.wait(tensor.all_reduce())
            assert tensor.read()[-1] == float(size)


    run(main)
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_a_tensor_that_the_arena_has_no_room_for_is_refused_with_the_setting(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.settings |= {"device_launch": "host", "arena_bytes": "16MiB"}
    start_on_gpus(cluster, FULL, layout).expect_success()
