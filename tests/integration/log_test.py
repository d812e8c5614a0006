"""What ringd's log says of a job, and whose each line is."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.failures.events import start_trainers, wait_for_all, wait_until_joining
from tests.integration.processes import wait_until

STALLS = """
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        if trainer.rank == trainer.size - 1:
            say("idle")
            time.sleep(60)
        say("in flight")
        trainer.all_reduce("gradient")


    run(main)
"""

LEAVES = """
    from trainer import Trainer, run


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("gradient") == trainer.size
        trainer.context.close()


    run(main)
"""


def lines_of(node: Node, job_id: str) -> list[dict[str, Any]]:
    """The log's lines that name this job."""
    lines = [json.loads(line) for line in node.output.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("job") == job_id]


def one_that_says(lines: list[dict[str, Any]], words: str) -> dict[str, Any]:
    found = [line for line in lines if words in line["message"]]
    assert len(found) == 1, f"{len(found)} lines with '{words}' in {lines}"
    return found[0]


def wait_for_lines(node: Node, job_id: str, words: str, count: int = 1) -> None:
    """Until that many of the job's lines contain the words."""

    def found() -> bool:
        return sum(words in line["message"] for line in lines_of(node, job_id)) >= count

    wait_until(found, f"{count} lines with '{words}' in the log of {node}")


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["one node", "two nodes"])
def test_every_line_of_a_job_says_whose_it_is(cluster: Cluster, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout), log_format="json", stall_warning="300ms")
    for generation in range(2):
        job = start_trainers(cluster, STALLS, layout, job_id="train", only_ranks=[1])
        # The other node's ringd learns the job's generation from the first one's, which knows no
        # job yet.
        wait_until_joining(cluster, job.ranks[0])
        rest = start_trainers(cluster, STALLS, layout, job_id="train", only_ranks=[0])
        ranks = [*rest.ranks, *job.ranks]
        wait_for_all(ranks[:1], "in flight")
        wait_for_lines(nodes[0], "train", "has not submitted 'gradient'", generation + 1)
        os.kill(ranks[1].pid, signal.SIGKILL)
        wait_for_all(ranks[:1], "error")
        ranks[0].wait()
        for node in nodes:
            wait_for_lines(node, "train", "job ended", generation + 1)

    for node in nodes:
        lines = lines_of(node, "train")
        for line in lines:
            assert isinstance(line["communicator"], int), line
        halves = [[line for line in lines if line["communicator"] == number] for number in (1, 2)]
        assert sum(map(len, halves)) == len(lines), lines
        for generation, of_one in enumerate(halves):
            started = of_one.index(one_that_says(of_one, "all 2 ranks have joined"))
            for line in of_one if node is nodes[0] else of_one[started:]:
                assert line["generation"] == generation, line
            assert one_that_says(of_one, "job failed")["level"] == "error"

    first = lines_of(nodes[0], "train")
    last = lines_of(nodes[-1], "train")
    assert {line["rank"] for line in first if "has not submitted" in line["message"]} == {0}
    killed = [line for line in last if "killed by signal 9" in line["message"] and line["level"] == "warning"]
    assert [line["rank"] for line in killed] == [1, 1]
    joined = [line for line in last if line["message"].endswith(" joins")]
    assert [line["rank"] for line in joined][-1:] == [0 if len(layout) == 1 else 1]


def test_a_rank_that_leaves_and_one_that_is_refused_are_named(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1, log_format="json")
    job = start_trainers(cluster, LEAVES, [2])
    job.expect_success()
    wait_for_lines(node, job.job_id, "job ended")
    left = [line for line in lines_of(node, job.job_id) if line["message"].endswith(" leaves")]
    assert sorted(line["rank"] for line in left) == [0, 1]
    assert {f"pid {rank.pid} leaves" for rank in job.ranks} == {line["message"] for line in left}

    job = start_trainers(cluster, LEAVES, [2], only_ranks=[0], job_id="other")
    wait_until_joining(cluster, job.ranks[0])
    wrong = start_trainers(cluster, LEAVES, [2], only_ranks=[1], job_id="other", secret="another")
    wait_for_all(wrong.ranks, "error")
    wait_for_lines(node, "other", "a rank could not join")
    refused = one_that_says(lines_of(node, "other"), "a rank could not join")
    assert refused["rank"] == 1
    assert "RINGD_JOB_SECRET" in refused["message"]
    assert {(line["communicator"], line["generation"]) for line in lines_of(node, "other")} == {(2, 0)}
