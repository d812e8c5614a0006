"""A job that fails and comes again goes on with the NCCL communicators that its engines have kept
(`keep_communicators`). On emulated GPUs."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.cluster import Cluster, JobRun, Node
from tests.integration.device_views_test import devices_of
from tests.integration.emulated_gpus import give_gpus
from tests.integration.engine_processes_test import engine_of
from tests.integration.failures.device_test import SUM, WAITS
from tests.integration.processes import wait_until

KEPT = "the GPUs' communicator of 2 ranks is kept"
TAKEN = "the GPUs' communicator of 2 ranks is the one of an earlier job"

# The last sum has ended everywhere, and nothing is in flight.
IDLES = """
    import os
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer(slab_bytes=int(os.environ.get("SLAB_MIB", "1")) << 20)
        tensor = trainer.tensor("gradient", [1.0] * 10)
        for _ in range(2):
            trainer.context.wait(tensor.all_reduce())
        say("idles")
        time.sleep(60)


    run(main)
"""


# Two communicators of the same ranks, which begin at once.
TWICE = """
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        context, size = trainer.context, trainer.size
        group = context.create_communicator("all of them", list(range(size)))
        tensors = [trainer.tensor("gradient", [1.0] * 10)]
        tensors.append(trainer.tensor("gradient", [2.0] * 10, communicator=group))
        context.wait_all([tensor.all_reduce() for tensor in tensors])
        assert [tensor.read()[0] for tensor in tensors] == [size, 2.0 * size]
        say("idles")
        time.sleep(60)


    run(main)
"""


def count(nodes: list[Node], text: str) -> list[int]:
    return [node.output.count(text) for node in nodes]


def kill(job: JobRun, first: int) -> None:
    """One rank is killed, and when the others have heard of it a launcher ends them."""
    for rank in sorted(job.ranks, key=lambda rank: rank.number != first):
        if rank.running():
            rank.send(signal.SIGKILL)
        rank.wait()


@pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)
def test_the_next_job_of_the_name_meets_nobody_anew(cluster: Cluster, layout: list[int]) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    nodes = cluster.start_nodes(len(layout), device_launch="engine")
    job = cluster.start_job(IDLES, layout, environment=environment, job_id="again")
    job.expect_output('"idles"')
    registered = [device["registered_bytes"] for device in devices_of(cluster)]
    kill(job, 1)
    wait_until(lambda: min(count(nodes, KEPT)) == 1, "all nodes keep it")
    job = cluster.start_job(IDLES, layout, environment=environment, job_id="again")
    job.expect_output('"idles"')
    assert count(nodes, TAKEN) == [1] * len(nodes)
    # The new ranks' memory, in place of that of those who died.
    assert [device["registered_bytes"] for device in devices_of(cluster)] == registered
    kill(job, 0)
    # One that comes sooner than its deaths are told meets anew.
    wait_until(lambda: min(count(nodes, KEPT)) == 2, "all nodes keep it again")
    cluster.start_job(SUM, layout, environment=environment, job_id="again").expect_success()
    assert count(nodes, TAKEN) == [2] * len(nodes)
    # Also after a job that all ranks have left, for a moment.
    cluster.start_job(SUM, layout, environment=environment, job_id="again").expect_success()
    assert count(nodes, TAKEN) == [3] * len(nodes)
    # Another job's is another engine's.
    cluster.start_job(SUM, layout, environment=environment, job_id="another").expect_success()
    assert count(nodes, TAKEN) == [3] * len(nodes)


def test_slabs_are_given_back_all_the_same(cluster: Cluster) -> None:
    # There is room for one of them.
    environment = give_gpus(cluster, cuda_memory_mib=128) | {"SLAB_MIB": "70"}
    nodes = cluster.start_nodes(2, device_launch="engine", fusion_threshold="1MiB")
    for incarnation in range(3):
        job = cluster.start_job(IDLES, [1, 1], environment=environment, job_id="again")
        job.expect_output('"idles"')
        kill(job, 1)
        assert count(nodes, TAKEN) == [incarnation] * 2
        wait_until(lambda: min(count(nodes, KEPT)) == incarnation + 1, "both nodes keep it")  # noqa: B023


@pytest.mark.parametrize("layout", [[1, 1], [2]], ids=str)
def test_one_of_two_communicators_of_the_same_ranks_goes_on(cluster: Cluster, layout: list[int]) -> None:
    environment = give_gpus(cluster, cuda_devices=max(layout))
    nodes = cluster.start_nodes(len(layout), device_launch="engine")
    for incarnation in range(3):
        job = cluster.start_job(TWICE, layout, environment=environment, job_id="again")
        job.expect_output('"idles"')
        assert max(count(nodes, TAKEN)) <= incarnation
        kill(job, 1)
        wait_until(lambda: min(count(nodes, KEPT)) >= 2 * (incarnation + 1), "all keep theirs")  # noqa: B023


def test_what_was_in_flight_is_not_kept_and_the_next_job_meets_anew(cluster: Cluster) -> None:
    environment = give_gpus(cluster, nccl_faults="hang@1:3")
    nodes = cluster.start_nodes(2, device_launch="engine")
    job = cluster.start_job(WAITS, [1, 1], environment=environment, job_id="again")
    job.expect_output('"in flight"')
    job.ranks[0].send(signal.SIGKILL)
    job.ranks[1].expect_output('"released"')
    kill(job, 0)
    cluster.start_job(SUM, [1, 1], environment=environment, job_id="again").expect_success()
    assert count(nodes, TAKEN) == [0, 0]


def test_a_node_whose_engine_has_gone_makes_all_meet_anew(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    nodes = cluster.start_nodes(2, device_launch="engine")
    job = cluster.start_job(IDLES, [1, 1], environment=environment, job_id="again")
    job.expect_output('"idles"')
    engine = engine_of(job.ranks[1])
    kill(job, 1)
    wait_until(lambda: min(count(nodes, KEPT)) == 1, "both nodes keep it")
    os.kill(engine, signal.SIGKILL)
    wait_until(lambda: engine not in nodes[1].engines(), "its end")
    cluster.start_job(SUM, [1, 1], environment=environment, job_id="again").expect_success()
    assert count(nodes, TAKEN) == [0, 0]


def test_an_engine_ends_when_the_job_has_not_come_again(cluster: Cluster) -> None:
    environment = give_gpus(cluster)
    (node,) = cluster.start_nodes(1, device_launch="engine", keep_communicators="1s")
    job = cluster.start_job(IDLES, [1], environment=environment, job_id="again")
    job.expect_output('"idles"')
    engine = engine_of(job.ranks[0])
    kill(job, 0)
    wait_until(lambda: engine not in node.engines(), "the engine's end")
    assert "is kept for 1 s" in node.output
