"""Each job has a process of its own on each node, its engine: what ends with it and what does
not."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cluster import RINGD_UID, Cluster, JobRun, Node
from tests.integration.engines import (
    await_standing_engines,
    engine_of,
    has_ended,
    shared_memory,
)
from tests.integration.failures.events import (
    BUSY_S,
    WORKS,
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
)
from tests.integration.failures.undisturbed import UndisturbedJob
from tests.integration.processes import wait_until

#: Of the supervisor, for what a job that has ended may leave: caches of the heap.
MOST_KIB_LEFT = 4096
MOST_DESCRIPTORS_LEFT = 8

WAITS = """
    import os
    import pwd

    import ringd
    from trainer import Trainer, run, say, say_error


    def become_nobody():
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
        os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)


    def main():
        if os.environ.get("AS_NOBODY"):
            become_nobody()
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        say("in flight")
        try:
            trainer.submit("never" if trainer.rank == 1 else "gradient").wait()
        except ringd.RingdError as error:
            say_error(error, "lost")


    run(main)
"""


# One rank alone, in a hundred jobs after each other.
HUNDRED = """
    import ringd
    from trainer import run


    def main():
        for number in range(100):
            place = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1}
            with ringd.Context(job_id=f"one of a hundred {number}", **place) as context:
                (registration,) = context.register([ringd.TensorSpec("gradient", shape=(1,))])
                address = context.arena_alloc(4)
                context.wait(context.submit(registration, address, address))


    run(main)
"""


def killed(job: JobRun, pid: int, node: Node) -> str:
    """What the job's ranks hear of their engine."""
    return f"the engine of job '{job.job_id}' (pid {pid} on {node.name}) was killed by signal 9 (Killed)"


def descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def memory_kib(node: Node) -> int:
    lines = Path(f"/proc/{node.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def test_each_job_has_an_engine_of_its_own_and_its_ranks_share_it(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    first, second = (start_trainers(cluster, WAITS, [2], job_id=name) for name in ("first", "second"))
    for job in (first, second):
        wait_for_all(job.ranks, "in flight")
    used = [{engine_of(rank) for rank in job.ranks} for job in (first, second)]
    assert [len(pids) for pids in used] == [1, 1]
    assert used[0] != used[1]
    assert not shared_memory(first.ranks[0].pid) & shared_memory(node.pid), "ringd maps nothing of a rank's"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_jobs_of_two_users_with_one_name_have_two_engines(cluster: Cluster) -> None:
    cluster.folder.chmod(0o755)
    cluster.start_nodes(1, allowed_users="nobody")
    ours = start_trainers(cluster, WAITS, [2], job_id="job", secret="ours")
    theirs = start_trainers(
        cluster, WAITS, [2], job_id="job", secret="theirs", environment={"AS_NOBODY": "1"}
    )
    for job in (ours, theirs):
        wait_for_all(job.ranks, "in flight")
    assert engine_of(ours.ranks[0]) != engine_of(theirs.ranks[0])


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["one node", "two nodes"])
def test_a_killed_engine_ends_its_job_alone(cluster: Cluster, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout))
    other = UndisturbedJob(cluster, layout)
    job = start_trainers(cluster, WAITS, layout, job_id="victim")
    wait_for_all(job.ranks, "in flight")
    victim = engine_of(job.ranks[0])
    assert victim != engine_of(other.ranks[0])

    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    errors = wait_for_all(job.ranks, "lost")
    expect_within(errors, begin, 1.0)
    expect_words(the_same_text(errors), killed(job, victim, nodes[0]))
    job.wait()

    # ringd has reaped it, serves, and says what has happened.
    wait_until(lambda: victim not in nodes[0].engines(), "no zombie is left")
    assert cluster.ringctl("status").returncode == 0
    jobs = json.loads(cluster.ringctl("jobs", "--json").stdout)
    assert [entry["job_id"] for entry in jobs["jobs"]] == [_job_id(other)]
    assert jobs["unanswered"] == []
    nodes[0].expect_output(killed(job, victim, nodes[0]))
    ended = json.loads(cluster.ringctl("jobs", "--all", "--json").stdout)["jobs"]
    (remembered,) = (entry for entry in ended if entry["job_id"] == "victim")
    assert remembered["state"] == "failed"
    expect_words(remembered["failure"], "was killed by signal 9")

    # The name can be used again at once.
    start_trainers(cluster, WORKS, layout, job_id="victim").expect_success()
    assert other.finish() > 0


def _job_id(job: UndisturbedJob) -> str:
    environment = Path(f"/proc/{job.ranks[0].pid}/environ").read_text().split("\0")
    return next(entry.partition("=")[2] for entry in environment if entry.startswith("RINGD_JOB_ID="))


IGNORES_CHILDREN = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_ringd_that_was_started_to_ignore_children_hears_how_its_engines_end(cluster: Cluster) -> None:
    node = Node("node0", cluster.folder, cluster.settings, [sys.executable, "-c", IGNORES_CHILDREN])
    cluster.nodes.append(node)
    node.wait_until_ready()
    job = start_trainers(cluster, WAITS, [2], job_id="victim")
    wait_for_all(job.ranks, "in flight")
    victim = engine_of(job.ranks[0])
    os.kill(victim, signal.SIGKILL)
    expect_words(the_same_text(wait_for_all(job.ranks, "lost")), killed(job, victim, node))
    job.wait()


def test_jobs_show_what_engines_take_and_silence_is_not_shown_as_no_jobs(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    job = start_trainers(cluster, WAITS, [2])
    wait_for_all(job.ranks, "in flight")
    engine = engine_of(job.ranks[0])
    (shown,) = json.loads(cluster.ringctl("jobs", "--json").stdout)["jobs"]
    assert shown["engine"]["pid"] == engine
    assert 0 < int(shown["engine"]["own_bytes"]) < int(shown["engine"]["resident_bytes"])
    assert shown["engine"]["processor_seconds"] >= 0
    expect_words(cluster.ringctl("jobs").stdout, "ENGINE", "MEMORY", "CPU", f" {engine} ")
    os.kill(engine, signal.SIGSTOP)
    try:
        answer = cluster.ringctl("jobs")
        assert answer.returncode == 1
        assert answer.stdout == "Not known: 1 engine that might tell has not answered.\n"
        expect_words(answer.stderr, f"pid {engine} has not answered")
        traced = cluster.ringctl("trace", "--seconds", "0", "--out", "-")
        assert traced.returncode == 1
        expect_words(traced.stderr, "no job is known", f"pid {engine} has not answered")
    finally:
        os.kill(engine, signal.SIGCONT)
    node.send(signal.SIGSTOP)
    try:
        answer = cluster.ringctl("jobs")
        assert (answer.returncode, answer.stdout) == (3, "")
        expect_words(answer.stderr, "no ringd answers", "is stopped or hangs")
        assert cluster.ringctl("trace", "--seconds", "0", "--out", "-").returncode == 3
    finally:
        node.send(signal.SIGCONT)


def test_a_stopped_engine_holds_up_no_list(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    other = UndisturbedJob(cluster, [2])
    held = UndisturbedJob(cluster, [2])
    stopped = engine_of(held.ranks[0])
    os.kill(stopped, signal.SIGSTOP)
    try:
        for query in ("jobs", "comms", "queues"):
            begin = time.monotonic()
            answer = cluster.ringctl(query)
            assert time.monotonic() - begin < 3 + BUSY_S, query
            assert answer.returncode == 0
            expect_words(answer.stdout, _job_id(other))
            assert _job_id(held) not in answer.stdout
            expect_words(answer.stderr, f"pid {stopped} has not answered")
            (sentence,) = json.loads(cluster.ringctl(query, "--json").stdout)["unanswered"]
            expect_words(sentence, f"pid {stopped} has not answered")
        trace = cluster.ringctl("trace", "--job", _job_id(held), "--out", str(cluster.folder / "trace.json"))
        assert trace.returncode == 1, trace.stderr
        expect_words(trace.stderr, f"job '{_job_id(held)}': pid {stopped} has not answered for 4 s")
        assert cluster.ringctl("status").returncode == 0
        # A job that begins meanwhile isn't held up either.
        start_trainers(cluster, WORKS, [2]).expect_success()
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: _job_id(held) in cluster.ringctl("jobs").stdout, "it is shown again")
    assert other.finish() > 0
    assert held.finish() > 0


def test_a_job_that_is_not_there_is_not_taken_for_an_idle_node(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = start_trainers(cluster, WAITS, [2], job_id="there")
    wait_for_all(job.ranks, "in flight")
    for query, what in (("jobs", "ranks"), ("comms", "communicators"), ("queues", "ranks")):
        answer = cluster.ringctl(query, "--job", "nope")
        assert answer.returncode == 1
        assert cluster.ringctl(query, "--job", "nope", "--json").returncode == 1
        assert answer.stdout == f"No {what} of a job 'nope' on this node.\n"
        found = cluster.ringctl(query, "--job", "there")
        assert found.returncode == 0
        expect_words(found.stdout, "there")


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_an_engine_without_a_sign_of_life_is_ended_after_engine_patience(
    cluster: Cluster, layout: list[int]
) -> None:
    """All ranks hear that, also those of other nodes."""
    node, *_ = cluster.start_nodes(len(layout), engine_patience="8s")
    other = UndisturbedJob(cluster, [2])
    job = start_trainers(cluster, WAITS, layout, job_id="hangs")
    wait_for_all(job.ranks, "in flight")
    stopped = engine_of(job.ranks[0])
    begin = time.monotonic()
    os.kill(stopped, signal.SIGSTOP)
    errors = wait_for_all(job.ranks, "lost")
    expect_within(errors, begin, 11.0)
    assert min(error["at"] - begin for error in errors) > 7
    expect_words(the_same_text(errors), "the engine of job 'hangs'", f"pid {stopped} on {node.name}")
    assert stopped not in node.engines()
    assert other.finish() > 0


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_engines_end_with_a_killed_ringd(cluster: Cluster, state: str) -> None:
    (node,) = cluster.start_nodes(1)
    job = start_trainers(cluster, WAITS, [2])
    wait_for_all(job.ranks, "in flight")
    of_node = node.engines()
    assert engine_of(job.ranks[0]) in of_node
    if state == "stopped":
        for pid in of_node:
            os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    node.kill()
    wait_until(lambda: all(has_ended(pid) for pid in of_node), "the engines are gone")
    expect_within(wait_for_all(job.ranks, "lost"), begin, 1.0)


def test_engines_end_with_a_ringd_that_is_told_to_stop(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    start_trainers(cluster, WORKS, [2]).expect_success()
    of_node = node.engines()
    assert node.terminate() == 0
    assert all(has_ended(pid) for pid in of_node)


def test_jobs_that_have_ended_leave_no_engine_memory_or_descriptor(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    # What is made once is there.
    for _ in range(3):
        start_trainers(cluster, WORKS, [2]).expect_success()
    await_standing_engines(node, 0)
    standing, opened, used = node.engines(), descriptors(node), memory_kib(node)
    start_trainers(cluster, HUNDRED, [1]).expect_success()
    for number in range(3):
        start_trainers(cluster, WORKS, [2], job_id=f"passing{number}").expect_success()
        # Some by a kill.
        job = start_trainers(cluster, WAITS, [2])
        wait_for_all(job.ranks, "in flight")
        os.kill(engine_of(job.ranks[0]), signal.SIGKILL)
        job.wait()
    wait_until(lambda: len(node.engines()) <= 2, f"none but the standing engines is left ({standing})")
    wait_until(
        lambda: descriptors(node) <= opened + MOST_DESCRIPTORS_LEFT, f"descriptors are back at {opened}"
    )
    wait_until(lambda: memory_kib(node) <= used + MOST_KIB_LEFT, f"memory is back at {used} KiB")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into them")
def test_engines_and_ringd_are_behind_their_walls(cluster: Cluster) -> None:
    cluster.run_ringd_as(RINGD_UID)
    (node,) = cluster.start_nodes(1, allowed_users="nobody")
    job = start_trainers(cluster, WAITS, [2], environment={"AS_NOBODY": "1"})
    wait_for_all(job.ranks, "in flight")
    engine = engine_of(job.ranks[0])
    for pid in (node.pid, engine):
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Uid:\t{RINGD_UID}\t" in status
        # Files of a process that nobody may look into are root's.
        assert Path(f"/proc/{pid}/mem").stat().st_uid == 0
    status = Path(f"/proc/{engine}/status").read_text()
    expect_words(status, "NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000")
    scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (node.pid, engine)]
    assert scores[1] == min(1000, scores[0] + 100)
    open_files = [os.readlink(entry) for entry in Path(f"/proc/{engine}/fd").iterdir()]
    assert not [path for path in open_files if path.startswith(str(cluster.folder))], open_files
