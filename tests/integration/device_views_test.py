"""What an operator sees of a job on GPUs, and may set: `ringctl comms` and `gpus`, the log,
`max_slab`. On emulated GPUs."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.cluster import Cluster, Node
from tests.integration.emulated_gpus import give_gpus, start_on_gpus
from tests.integration.failures.events import expect_words, parse_events
from tests.integration.processes import wait_until

STAYS = """
    import time

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run, say


    def main():
        trainer = DeviceTrainer(slab_bytes=1 << 20)
        tensor = trainer.tensor("gradient", [1.0] * 4)
        trainer.context.wait(tensor.all_reduce())
        say("reduced")
        try:
            trainer.context.wait(tensor.all_reduce())
        except ringd.RingdError:
            say("lost")
        time.sleep(60)


    run(main)
"""


def devices_of(cluster: Cluster, node: Node | None = None) -> list[dict[str, Any]]:
    reply = json.loads(cluster.ringctl("comms", "--json", node=node).stdout)
    (entry,) = reply["communicators"]
    devices: list[dict[str, Any]] = entry["devices"]
    return devices


def test_ringctl_comms_shows_the_gpus_of_a_communicator(cluster: Cluster, who_launches: str) -> None:
    cluster.settings["fusion_threshold"] = "2MiB"
    job = start_on_gpus(cluster, STAYS, [2, 1], nccl_version=22907)
    job.expect_output('"reduced"')
    devices = devices_of(cluster)
    assert [device["rank"] for device in devices] == [0, 1]
    assert len({device["gpu"] for device in devices}) == 2
    for number, device in enumerate(devices):
        assert device["gpu"].startswith("GPU-")
        assert int(device["slab_bytes"]) >= 1 << 20
        assert int(device["registered_bytes"]) == int(device["slab_bytes"]) + (2 << 20)
        expected = {
            "mps": "off",
            "nccl_version": "2.29.7",
            "nccl_rank": number,
            "state": "ready",
            "error": "",
            "fusion_bytes": str(2 << 20),
            "launched_by": who_launches,
            "why_not_registered": "",
        }
        assert {key: device[key] for key in expected} == expected
    (other,) = devices_of(cluster, node=cluster.nodes[1])
    assert (other["rank"], other["nccl_rank"]) == (2, 2)
    text = " ".join(cluster.ringctl("comms").stdout.split())
    expect_words(text, "rank 1 on GPU-", "NCCL 2.29.7, its rank 1 of 3, ready")
    expect_words(text, "2 MiB for packing", "registered;")
    expect_words(text, f"the {who_launches} launches")


def test_memory_that_nccl_does_not_register_is_told(cluster: Cluster, who_launches: str) -> None:
    environment = give_gpus(cluster)
    cluster.environment["NCCL_LOCAL_REGISTER"] = "0"
    cluster.start_nodes(2)
    job = cluster.start_job(STAYS, [1, 1], environment=environment)
    job.expect_output('"reduced"')
    for node in cluster.nodes:
        (device,) = devices_of(cluster, node=node)
        assert device["registered_bytes"] == "0"
        assert device["why_not_registered"]
        text = " ".join(cluster.ringctl("comms", node=node).stdout.split())
        expect_words(text, "none registered (")


def test_ringctl_comms_shows_nccls_asynchronous_error(cluster: Cluster) -> None:
    remote_error = 6
    job = start_on_gpus(cluster, STAYS, [1, 1], nccl_faults=f"error@1:3={remote_error}")
    job.ranks[1].expect_output('"lost"')
    (device,) = devices_of(cluster, node=cluster.nodes[1])
    assert device["state"] == "failed"
    expect_words(device["error"], "NCCL has failed", "remote process exited")
    expect_words(
        " ".join(cluster.ringctl("comms", node=cluster.nodes[1]).stdout.split()),
        "failed (",
        "remote process exited",
    )


def lines_of_mps(node: Node) -> list[str]:
    return [line for line in node.output.splitlines() if "without MPS" in line]


def test_a_gpu_without_mps_is_told_once_in_a_job_with_what_follows(
    cluster: Cluster, who_launches: str
) -> None:
    job = start_on_gpus(cluster, STAYS, [2])
    job.expect_output('"reduced"')
    (node,) = cluster.nodes
    assert {device["mps"] for device in devices_of(cluster)} == {"off"}
    node.expect_output("without MPS")
    # Two GPUs, one job.
    (line,) = lines_of_mps(node)
    comms = cluster.ringctl("comms").stdout
    if who_launches == "engine":
        expect_words(line, "warning", "GPU-", "in turns", "ringd-mps.service", "device_launch", "engine=")
        expect_words(comms, "ringd-mps.service")
    else:
        expect_words(line, "info", "GPU-", "trainers launch", "engine=")
        assert "ringd-mps.service" not in comms
    expect_words(cluster.ringctl("gpus").stdout, "ringd-mps.service", "device_launch")
    other = cluster.start_job(STAYS, [1], environment=give_gpus(cluster, cuda_devices=2))
    other.expect_output('"reduced"')
    wait_until(lambda: len(lines_of_mps(node)) == 2, "a line for the other job")


def test_under_mps_nothing_is_said(cluster: Cluster) -> None:
    job = start_on_gpus(cluster, STAYS, [2], cuda_mps="multiuser")
    job.expect_output('"reduced"')
    assert {device["mps"] for device in devices_of(cluster)} == {"on"}
    assert not lines_of_mps(cluster.nodes[0])
    for view in ("comms", "gpus"):
        assert "ringd-mps.service" not in cluster.ringctl(view).stdout


LIMITED = """
    import ringd
    from device_trainer import DeviceTrainer
    from trainer import Trainer, run, say_error


    def main():
        trainer = Trainer()
        try:
            trainer.context.device_open(trainer.context.place.local_rank, (2 << 20) + 1)
        except ringd.ResourceExhaustedError as error:
            say_error(error, "refused")
        # What is allowed is given after that, to each rank.
        trainer.context.device_open(trainer.context.place.local_rank, 2 << 20)
        trainer.context.device_alloc(1 << 20)


    run(main)
"""


def test_a_slab_above_max_slab_is_refused_with_setting_and_amounts(cluster: Cluster) -> None:
    cluster.settings["max_slab"] = "2MiB"
    job = start_on_gpus(cluster, LIMITED, [2])
    job.expect_success()
    errors = [event["text"] for event in parse_events(job.transcript(), "refused")]
    assert len(errors) == 2
    for error in errors:
        expect_words(error, "max_slab", "slab_bytes", str((2 << 20) + 1), str(2 << 20))
