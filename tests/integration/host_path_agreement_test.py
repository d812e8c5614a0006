"""Ranks of which some can't use NCCL, or shall not: all take the host path in their communicators.
On emulated GPUs."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.device_refusals_test import error_of
from tests.integration.emulated_gpus import give_gpus
from tests.integration.failures.events import expect_words
from tests.integration.host_path_test import LAYOUTS, NO_NCCL, warnings_of

AGREES = """
    import os
    import time

    import ringd
    from device_trainer import DeviceTrainer, Driver
    from trainer import Trainer, run, say, say_error


    class LateTrainer(DeviceTrainer):
        def __init__(self):
            Trainer.__init__(self)
            self.driver = Driver(self.context.place.local_rank)
            self.stream = self.driver.stream
            if self.rank == int(os.environ.get("LATE", "-1")):
                time.sleep(float(os.environ["LATE_S"]))
            self.context.device_open(self.context.place.local_rank, 1 << 20)


    def main():
        own = os.environ["RANK"]
        if own == os.environ.get("ASKS"):
            os.environ["RINGD_HOST_PATH"] = "1"
        if own == os.environ.get("LACKS"):
            os.environ["RINGD_NCCL_LIBRARY"] = "/no/such/libnccl.so.2"
        trainer = LateTrainer()
        context, rank, size = trainer.context, trainer.rank, trainer.size

        def reduces(name, ranks, **spec):
            tensor = trainer.tensor(name, [float(rank)] * 100, **spec)
            for _ in range(3):
                context.wait(tensor.all_reduce())
                assert tensor.read() == [float(sum(ranks))] * 100, tensor.read()[:3]

        try:
            reduces("gradient", range(size))
        except ringd.RingdError as error:
            say_error(error, "refused")
            return
        for pair in ([0, 1], [1, 2]):
            if rank in pair and max(pair) < size:
                reduces("in a pair", pair, communicator=context.create_communicator(f"of {pair}", pair))
        reduces("later", range(size))
        say("reduced")
        if os.environ.get("STAYS"):
            time.sleep(60)


    run(main)
"""


def agreed_of(job: JobRun) -> list[str]:
    """What ranks have been told that could use NCCL."""
    return [line for line in warnings_of(job) if "as those of" in line]


def test_nodes_of_which_one_takes_the_host_path_all_take_it(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(1, device_launch="trainer")
    cluster.start_nodes(1, device_launch="host")
    job = cluster.start_job(AGREES, [1, 1], environment=environment)
    job.expect_success()
    # Once, though there are several tensors and communicators.
    (told,) = agreed_of(job)
    expect_words(told, "GPU tensors of rank 0", "rank 1, pid ", f"on {cluster.nodes[1].name}")
    expect_words(told, 'device_launch = "host" is set there')
    expect_words(cluster.nodes[0].output, "go through host memory", "rank 1, pid ")


@LAYOUTS
def test_a_rank_without_nccl_takes_the_others_along(cluster: Cluster, layout: list[int]) -> None:
    cluster.settings["device_launch"] = "auto"
    lacking = sum(layout) - 1
    environment = give_gpus(cluster, cuda_devices=max(layout)) | {"LACKS": str(lacking)}
    cluster.start_nodes(len(layout))
    job = cluster.start_job(AGREES, layout, environment=environment)
    job.expect_success()
    told = agreed_of(job)
    assert len(told) == sum(layout) - 1
    for line in told:
        expect_words(line, f"rank {lacking}, pid ", NO_NCCL)


def test_ranks_of_one_node_agree_on_what_one_of_them_asks_for(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_devices=2) | {"ASKS": "0"}
    cluster.start_nodes(1)
    job = cluster.start_job(AGREES, [2], environment=environment)
    job.expect_success()
    (told,) = warnings_of(job)
    expect_words(told, "GPU tensors of rank 1", "rank 0, pid ", "RINGD_HOST_PATH=1 is set there")


@pytest.mark.parametrize("late", [0, 1])
def test_ranks_wait_for_one_that_opens_its_gpu_late(cluster: Cluster, late: int) -> None:
    cluster.settings["stall_warning"] = "1s"
    environment = give_gpus(cluster) | {"LACKS": "1", "LATE": str(late), "LATE_S": "3"}
    cluster.start_nodes(2)
    job = cluster.start_job(AGREES, [1, 1], environment=environment)
    job.expect_success()
    assert len(agreed_of(job)) == 1
    # The one without NCCL has nothing to wait for but the other's tensor.
    waited = "to open a GPU" in job.transcript()
    assert waited == (late == 1), job.transcript()


def test_communicators_without_the_rank_that_lacks_nccl_use_it_and_comms_shows_why(cluster: Cluster) -> None:
    environment = give_gpus(cluster, cuda_devices=2) | {"LACKS": "2", "STAYS": "1"}
    cluster.start_nodes(2, device_launch="auto")
    job = cluster.start_job(AGREES, [2, 1], environment=environment)
    job.expect_output('"reduced"')
    reply = json.loads(cluster.ringctl("comms", "--json").stdout)
    by_name = {entry["name"]: entry["devices"] for entry in reply["communicators"]}
    assert len(by_name) == 3
    for name, devices in by_name.items():
        by_host = name != "of [0, 1]"
        assert devices, name
        for device in devices:
            assert device["launched_by"] == ("host" if by_host else "trainer"), (name, device)
            if by_host:
                expect_words(device["error"], "rank 2, pid ", f"on {cluster.nodes[1].name}", NO_NCCL)


def test_a_rank_that_comes_too_late_and_lacks_nccl_is_named_with_the_remedy(cluster: Cluster) -> None:
    environment = give_gpus(cluster) | {"ASKS": "1", "LATE": "1", "LATE_S": "12"}
    environment["RINGD_START_TIMEOUT"] = "8"
    cluster.start_nodes(2)
    job = cluster.start_job(AGREES, [1, 1], environment=environment)
    job.expect_success()
    expect_words(job.transcript(), "are left to NCCL without word of ranks", "rank 1, pid ")
    errors = error_of(job)
    assert len(errors) == 2
    for error in errors:
        expect_words(error, "'gradient'", "rank 0 on ", "in device memory,", "rank 1 on ", "by the host path")
        expect_words(error, 'device_launch = "host"', "RINGD_HOST_PATH=1")


WITHOUT_GPU = """
    import os

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run, say_error


    def main():
        rank = int(os.environ["RANK"])
        if rank == 1:
            os.environ["RINGD_CUDA_LIBRARY"] = "/no/such/libcuda.so.1"
        trainer = DeviceTrainer() if rank == 0 else Trainer()
        try:
            if rank == 0:
                trainer.context.wait(trainer.tensor("gradient", [1.0] * 4).all_reduce())
            else:
                try:
                    trainer.context.device_open(0, 1 << 20)
                except ringd.RingdError as error:
                    say_error(error, "no GPU")
                trainer.all_reduce("gradient", count=4)
        except ringd.RingdError as error:
            say_error(error, "refused")


    run(main)
"""


def test_nobody_waits_for_a_rank_that_can_open_no_gpu(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(2)
    begin = time.monotonic()
    job = cluster.start_job(WITHOUT_GPU, [1, 1], environment=environment)
    job.expect_success()
    assert time.monotonic() - begin < 60  # the start timeout is longer
    for error in error_of(job):
        expect_words(error, "'gradient'", "in device memory", "in host memory")
