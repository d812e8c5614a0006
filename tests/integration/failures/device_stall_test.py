"""A stream that does not come to its tensors: the rank is named that holds the others up, and
nobody while all GPUs compute."""

from __future__ import annotations

import time

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.emulated_gpus import give_gpus
from tests.integration.failures.events import wait_for_all, wait_for_warning
from tests.integration.failures.stall_test import waits_for
from tests.integration.processes import wait_until

# The streams of the ranks in LATE are held up until the test's word.
HELD_UP = """
    import os
    import time

    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer()
        tensor = trainer.tensor("gradient", [1.0] * 10)
        trainer.context.wait(tensor.all_reduce())
        # A copy from ordinary memory would wait for the stream.
        tensor.write()
        trainer.driver.synchronize(trainer.stream)
        is_late = str(trainer.rank) in os.environ["LATE"].split()
        let_go = trainer.driver.hold_up(trainer.stream) if is_late else lambda: None
        operation = trainer.context.submit_on_stream(
            tensor.registration, tensor.address, tensor.address, trainer.stream
        )
        say("submitted")
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
            # Warnings are told by whoever calls.
            trainer.context.test(operation)
        let_go()
        trainer.context.wait(operation)
        assert tensor.read() == [float(trainer.size)] * 10


    run(main)
"""

# Tensors whose streams come one after the other, on all ranks alike.
IN_TURN = """
    import time

    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        tensors = [trainer.tensor(f"gradient.{i}", [1.0] * 10) for i in range(12)]
        for tensor in tensors:
            trainer.context.wait(tensor.all_reduce())
            tensor.write()
        trainer.driver.synchronize(trainer.stream)
        streams = [trainer.driver.new_stream() for _ in tensors]
        gates = [trainer.driver.hold_up(stream) for stream in streams]
        operations = [
            trainer.context.submit_on_stream(tensor.registration, tensor.address, tensor.address, stream)
            for tensor, stream in zip(tensors, streams)
        ]
        for let_go in gates:
            for _ in range(30):
                time.sleep(0.01)
                trainer.context.test(operations[-1])
            let_go()
        for operation in operations:
            trainer.context.wait(operation)


    run(main)
"""

LAUNCHES = pytest.mark.parametrize("who_launches", ["engine", "trainer"])


def start(cluster: Cluster, who_launches: str, late: str) -> JobRun:
    environment = give_gpus(cluster) | {"GO": str(cluster.folder / "go"), "LATE": late}
    cluster.start_nodes(2, stall_warning="1s", device_launch=who_launches)
    job = cluster.start_job(HELD_UP, [1, 1], environment=environment)
    wait_for_all(job.ranks, "submitted")
    return job


@LAUNCHES
def test_a_rank_whose_stream_does_not_come_is_named(cluster: Cluster, who_launches: str) -> None:
    job = start(cluster, who_launches, "1")
    waits, late = job.ranks
    words = ["rank 1", f"pid {late.pid}", "has not got 'gradient' ready on its GPU"]
    wait_for_warning(waits, "rank 0 is waiting", *words)
    wait_for_warning(late, "rank 1 keeps others waiting", *words)
    wait_until(
        lambda: f"rank 1, pid {late.pid}" in waits_for(cluster, waits, "gradient"),
        "ringctl queues tells for whom the rank waits",
    )
    (cluster.folder / "go").touch()
    job.expect_success()


@LAUNCHES
def test_nobody_is_warned_while_all_gpus_compute(cluster: Cluster, who_launches: str) -> None:
    job = start(cluster, who_launches, "0 1")
    time.sleep(4)
    (cluster.folder / "go").touch()
    job.expect_success()
    for rank in job.ranks:
        assert "waiting" not in rank.output


@LAUNCHES
def test_nobody_is_warned_while_gpus_come_to_one_tensor_after_the_other(
    cluster: Cluster, who_launches: str
) -> None:
    environment = give_gpus(cluster)
    cluster.start_nodes(2, stall_warning="1s", device_launch=who_launches)
    job = cluster.start_job(IN_TURN, [1, 1], environment=environment)
    job.expect_success()
    for rank in job.ranks:
        assert "waiting" not in rank.output
