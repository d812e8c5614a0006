"""ringd dies: clients and other nodes hear it at once; started again, it serves as if nothing had
been."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.failures.events import (
    WORKS,
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
)
from tests.integration.processes import wait_until

WAITS = """
    import os
    import time

    import ringd
    from trainer import Trainer, run, say, say_error


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        operation = None if trainer.rank == 1 else trainer.submit("gradient")
        say("in flight")
        try:
            (operation or trainer.submit("never")).wait()
        except ringd.RingdError as error:
            say_error(error, "lost")
        # Nor does anything that is begun now hang.
        try:
            trainer.all_reduce("afterwards")
        except ringd.RingdError:
            say("still an error")
        trainer.context.close()
        del operation, trainer
        say("closed")
        time.sleep(60)


    run(main)
"""


def memory_of_ringd(pid: int) -> list[str]:
    """Memory of ringd's making that a process holds, by descriptor or by mapping."""
    descriptors = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    mappings = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [entry for entry in descriptors + mappings if "memfd:ringd" in entry]


def run_job(cluster: Cluster, layout: list[int]) -> None:
    start_trainers(cluster, WORKS, layout).expect_success()


def expect_nothing_kept(job: JobRun) -> None:
    wait_for_all(job.ranks, "closed")
    for rank in job.ranks:
        wait_until(lambda pid=rank.pid: not memory_of_ringd(pid), f"{rank} lets go of ringd's memory")  # type: ignore[misc]


@pytest.mark.over_ucx
@pytest.mark.parametrize("victim", [0, 1], ids=["coordinator's node", "other node"])
def test_a_killed_ringd_is_noticed_at_once_and_replaced(cluster: Cluster, victim: int) -> None:
    nodes = cluster.start_nodes(2)
    job = start_trainers(cluster, WAITS, [2, 2])
    wait_for_all(job.ranks, "in flight")
    assert memory_of_ringd(job.ranks[0].pid)
    killed = time.monotonic()
    nodes[victim].kill()
    errors = wait_for_all(job.ranks, "lost")
    expect_within(errors, killed, 1.0)
    local = errors[2 * victim : 2 * victim + 2]
    remote = errors[2 - 2 * victim : 4 - 2 * victim]
    assert {error["kind"] for error in local} == {"UnavailableError"}
    expect_words(the_same_text(local), f"ringd (pid {nodes[victim].pid}) on {nodes[victim].name} has gone")
    assert {error["kind"] for error in remote} == {"JobFailedError"}
    # Our own words; the network's are in the log.
    ranks = "ranks 0, 1" if victim == 0 else "ranks 2, 3"
    assert re.fullmatch(
        rf"ringd on {nodes[victim].name} \({ranks}\) ended or lost its connection "
        r"while .* in flight \('gradient'(, 'never')?\)",
        the_same_text(remote),
    ), remote
    survivor = nodes[1 - victim]
    lost = r"info .*(lost the connection to|stream.* ended)"
    wait_until(lambda: re.search(lost, survivor.output) is not None, f"the log of {survivor} says why")
    wait_for_all(job.ranks, "still an error")
    expect_nothing_kept(job)

    # The same socket, and the same port, which other nodes know.
    assert nodes[victim].socket.exists(), "nothing stale was there to be in the way"
    cluster.restart(nodes[victim], peer_address=nodes[victim].peer_address)
    run_job(cluster, [2, 2])
    run_job(cluster, [2])


def test_one_node_is_served_again_after_its_ringd_was_killed(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    for _ in range(2):
        job = start_trainers(cluster, WAITS, [3])
        wait_for_all(job.ranks, "in flight")
        killed = time.monotonic()
        node.kill()
        expect_within(wait_for_all(job.ranks, "lost"), killed, 1.0)
        node = cluster.restart(node)
        run_job(cluster, [3])
        # While the ranks of before still live.
        expect_nothing_kept(job)
