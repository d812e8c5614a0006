"""An engine that dies, or can't do its work, at each stage of a job: its ranks hear why, and the
job that runs beside it notices nothing."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.engines import await_standing_engines, engine_of, has_ended
from tests.integration.failures.events import (
    WORKS,
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_until_joining,
)
from tests.integration.failures.undisturbed import UndisturbedJob
from tests.integration.processes import binary, wait_until

# Rank 1 joins when the file named by BEGIN exists, all leave when END does.
STAGES = """
    import os
    import time

    import ringd
    from trainer import Trainer, run, say, say_error


    def main():
        trainer = None
        try:
            while os.environ["RANK"] == "1" and not os.path.exists(os.environ["BEGIN"]):
                time.sleep(0.01)
            trainer = Trainer()
            say("begins")
            for step in range(10**9):
                more = trainer.submit("more", float(not os.path.exists(os.environ["END"])))
                assert trainer.all_reduce("gradient", float(step), count=1000) == step * trainer.size
                if step == 200:
                    say("steady")
                if more.wait() < trainer.size:
                    break
            say("leaves")
            trainer.context.close()
            time.sleep(60)
        except ringd.RingdError as error:
            say_error(error, "lost")


    run(main)
"""


def kill(pid: int, node: Node) -> float:
    """When it was; the engine has been reaped by ringd."""
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(pid) and pid not in node.engines(), "no zombie is left")
    return killed


def test_standing_engines_that_are_killed_are_replaced(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    other = UndisturbedJob(cluster, [2])
    await_standing_engines(node, 1)
    for pid in set(node.engines()) - {engine_of(other.ranks[0])}:
        kill(pid, node)
    # While there is none, and when there are some again.
    start_trainers(cluster, WORKS, [2]).expect_success()
    await_standing_engines(node, 1)
    start_trainers(cluster, WORKS, [2]).expect_success()
    assert other.finish() > 0


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["one node", "two nodes"])
@pytest.mark.parametrize("stage", ["start", "first steps", "steady"])
def test_an_engine_killed_at_a_stage_of_its_job_is_named(
    cluster: Cluster, layout: list[int], stage: str
) -> None:
    cluster.start_nodes(len(layout))
    other = UndisturbedJob(cluster, layout)
    begin, end = cluster.folder / "begin", cluster.folder / "end"
    environment = {"BEGIN": str(begin), "END": str(end)}
    job = start_trainers(cluster, STAGES, layout, environment=environment, job_id="victim")
    node = job.ranks[0].node
    waiting = job.ranks[:1]
    if stage == "start":
        wait_until_joining(cluster, job.ranks[0])
    else:
        begin.touch()
        waiting = job.ranks
        wait_for_all(waiting, "begins" if stage == "first steps" else "steady")
    pid = engine_of(job.ranks[0])
    killed = kill(pid, node)
    lost = wait_for_all(waiting, "lost")
    expect_within(lost, killed, 3.0)
    expect_words(the_same_text(lost), f"(pid {pid} on {node.name}) was killed by signal 9")
    for rank in job.ranks:
        rank.destroy()
    start_trainers(cluster, WORKS, layout, job_id="victim").expect_success()
    assert other.finish() > 0


def test_an_engine_killed_when_its_ranks_have_left_is_nobodys_loss(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    other = UndisturbedJob(cluster, [1, 1])
    begin, end = cluster.folder / "begin", cluster.folder / "end"
    begin.touch()
    environment = {"BEGIN": str(begin), "END": str(end)}
    job = start_trainers(cluster, STAGES, [1, 1], environment=environment, job_id="victim")
    wait_for_all(job.ranks, "steady")
    pid = engine_of(job.ranks[0])
    end.touch()
    wait_for_all(job.ranks, "leaves")
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in nodes[0].engines(), "no zombie is left")
    time.sleep(0.5)
    assert '"lost"' not in job.transcript()
    start_trainers(cluster, WORKS, [1, 1], job_id="victim").expect_success()
    assert other.finish() > 0


def address_space(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.one_user
def test_an_engine_without_memory_fails_its_job_alone(cluster: Cluster) -> None:
    # The second rank may come when the first one's engine has gone, and waits in the other engine.
    (node,) = cluster.start_nodes(1, start_timeout="8s")
    other = UndisturbedJob(cluster, [2])
    await_standing_engines(node, 1)
    starved = set(node.engines()) - {engine_of(other.ranks[0])}
    for pid in starved:
        most = address_space(pid)
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    job = start_trainers(cluster, WORKS, [2])
    errors = [event["text"] for event in wait_for_all(job.ranks, "error")]
    told = [text for text in errors if "bad_alloc" in text]
    assert told, errors
    for text in told:
        expect_words(text, f"the engine of job '{job.job_id}' (pid ")
    for text in set(errors) - set(told):
        expect_words(text, "join")
    job.wait()
    if set(node.engines()) & starved:
        start_trainers(cluster, WORKS, [2]).wait()
    start_trainers(cluster, WORKS, [2]).expect_success()
    assert other.finish() > 0


@pytest.mark.one_user
@pytest.mark.parametrize("update", ["replaced", "gone"])
def test_an_update_of_the_engines_program_ends_no_job_and_hinders_none(cluster: Cluster, update: str) -> None:
    program = cluster.folder / "ringd-engine"
    shutil.copy(binary("ringd-engine").resolve(), program)
    (node,) = cluster.start_nodes(1, engine_program=str(program))
    other = UndisturbedJob(cluster, [2])
    await_standing_engines(node, 1)
    assert "replaced" not in cluster.ringctl("status", node=node).stdout
    if update == "gone":
        program.unlink()
    else:
        another = cluster.folder / "another"
        shutil.copy("/bin/false", another)
        another.rename(program)
    expect_words(cluster.ringctl("status", node=node).stdout, "ringd-engine has been replaced on disk")
    # Those that stood ready are of before: the next ones are, too.
    for pid in set(node.engines()) - {engine_of(other.ranks[0])}:
        kill(pid, node)
    start_trainers(cluster, WORKS, [2]).expect_success()
    await_standing_engines(node, 1)
    assert other.finish() > 0
