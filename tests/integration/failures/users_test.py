"""What another user's process may and may not do. Needs root, which can become another user."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import time
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import (
    expect_words,
    parse_events,
    start_trainers,
    wait_for_all,
    wait_for_event,
    wait_until_joining,
)
from tests.integration.processes import PATIENCE_S, binary, wait_until

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.one_user,
]

# The imports come first: the other user need not be able to read the installation.
BECOME_NOBODY = """
    import os
    import pwd

    import ringd
    from trainer import Trainer, run, say

    NOBODY = pwd.getpwnam("nobody")


    def become_nobody():
        os.setgroups([])
        os.setresgid(NOBODY.pw_gid, NOBODY.pw_gid, NOBODY.pw_gid)
        os.setresuid(NOBODY.pw_uid, NOBODY.pw_uid, NOBODY.pw_uid)


    def main():
        if os.environ.get("AS_NOBODY"):
            become_nobody()
        trainer = Trainer()
        for step in range(10):
            assert trainer.all_reduce("gradient", float(step)) == step * trainer.size


    if __name__ == "__main__" and not os.environ.get("SPY"):
        run(main)
"""

# Tries every way into the process SPY that the kernel offers, and prints which ones are open.
SPIES = (
    BECOME_NOBODY
    + """
    import ctypes


    def get_fd(pid, number):
        pidfd = os.pidfd_open(pid)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(438, pidfd, number, 0) < 0:  # pidfd_getfd
            raise OSError(ctypes.get_errno(), "pidfd_getfd")


    def read_memory(pid):
        with open(f"/proc/{pid}/mem", "rb"):
            pass


    def spy():
        become_nobody()
        pid = int(os.environ["SPY"])
        ways = {
            "list": lambda: os.listdir(f"/proc/{pid}/fd"),
            "mem": lambda: read_memory(pid),
            "map_files": lambda: os.listdir(f"/proc/{pid}/map_files"),
        }
        for number in range(40):
            ways[f"open {number}"] = lambda number=number: os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
            ways[f"get {number}"] = lambda number=number: get_fd(pid, number)
        for way, attempt in ways.items():
            try:
                attempt()
            except PermissionError:
                continue
            say("open way", way=way)


    run(spy)
"""
)

SESSION_HOLDER = """
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("gradient") == 1.0
        say("attached")
        time.sleep(60)


    run(main)
"""

# Holds a session, as nobody if told to. SPY keeps what it begins with from running.
HOLDER = (
    BECOME_NOBODY
    + """
    import time


    def hold():
        if os.environ.get("AS_NOBODY"):
            become_nobody()
        trainer = Trainer()
        trainer.submit("secret-name")
        say("attached")
        time.sleep(60)


    run(hold)
"""
)

AS_NOBODY = {"AS_NOBODY": "1"}
NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture(autouse=True)
def _others_reach_the_socket(cluster: Cluster) -> None:
    cluster.folder.chmod(0o755)


def test_another_user_is_refused_unless_admitted(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = start_trainers(cluster, BECOME_NOBODY, [1], environment=AS_NOBODY)
    error = wait_for_event(job.ranks[0], "error")
    assert error["kind"] == "PermissionDeniedError"
    expect_words(error["text"], f"uid {NOBODY}", "allowed_users")


@pytest.mark.parametrize("setting", [{"allowed_users": "nobody"}, {"allowed_groups": "nogroup"}], ids=str)
def test_an_admitted_user_is_served(cluster: Cluster, setting: dict[str, str]) -> None:
    cluster.start_nodes(1, **setting)
    start_trainers(cluster, BECOME_NOBODY, [2], environment=AS_NOBODY).expect_success()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["same node", "other node"])
def test_an_admitted_user_can_not_join_another_users_job(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), allowed_users="nobody", start_timeout="10s")
    ours = start_trainers(cluster, BECOME_NOBODY, layout, only_ranks=[0], job_id="job", secret="ours")
    # On the same node even knowing the secret doesn't help; another node's word is the secret.
    secret = "ours" if layout == [2] else "theirs"
    theirs = start_trainers(
        cluster, BECOME_NOBODY, layout, only_ranks=[1], job_id="job", secret=secret, environment=AS_NOBODY
    )
    for rank in [*ours.ranks, *theirs.ranks]:
        wait_for_event(rank, "error")
        assert not parse_events(rank.output, "joined"), rank.output
    assert wait_for_event(ours.ranks[0], "error")["kind"] == "DeadlineExceededError"
    expect_words(wait_for_event(ours.ranks[0], "error")["text"], "rank 1 did not join")


OURS: dict[str, Any] = {"secret": "ours"}
THEIRS: dict[str, Any] = {"secret": "theirs", "environment": AS_NOBODY}


def test_without_a_secret_another_users_node_is_named_as_turned_away(cluster: Cluster) -> None:
    cluster.start_nodes(2, allowed_users="nobody", start_timeout="2s")
    ours = start_trainers(cluster, BECOME_NOBODY, [1, 1], only_ranks=[0], job_id="job", secret="")
    wait_until_joining(cluster, ours.ranks[0])
    theirs = start_trainers(
        cluster, BECOME_NOBODY, [1, 1], only_ranks=[1], job_id="job", secret="", environment=AS_NOBODY
    )
    words = ("rank 1 did not join", "turned away", "node1", f"uid {NOBODY}", "RINGD_JOB_SECRET", "uid 0")
    expect_words(wait_for_event(ours.ranks[0], "error")["text"], *words)
    early = ("no rank of the job has joined there", f"uid {NOBODY}")
    expect_words(wait_for_event(theirs.ranks[0], "error")["text"], *early)


@pytest.mark.parametrize(
    "order",
    [
        [(0, OURS), (0, THEIRS), (1, THEIRS), (1, OURS)],
        # The other node's rank comes while only another user's job of that name is known.
        [(0, OURS), (1, THEIRS), (0, THEIRS), (1, OURS)],
        [(1, THEIRS), (1, OURS), (0, OURS), (0, THEIRS)],
    ],
    ids=["ranks 0 first", "in turn", "ranks 1 first"],
)
@pytest.mark.parametrize("secrets", ["two secrets", "no secret"])
def test_jobs_of_two_users_may_have_one_name(
    cluster: Cluster, order: list[tuple[int, dict[str, Any]]], secrets: str
) -> None:
    nodes = cluster.start_nodes(2, allowed_users="nobody", start_timeout="15s")
    jobs = []
    for only_rank, whose in order:
        options = whose if secrets == "two secrets" else whose | {"secret": ""}
        job = start_trainers(cluster, BECOME_NOBODY, [1, 1], only_ranks=[only_rank], job_id="job", **options)
        jobs.append(job)
        if len(jobs) <= 2:
            wait_until_joining(cluster, job.ranks[0])
            # Its node's Hello has come to node0, too.
            time.sleep(0.2)
    for job in jobs:
        job.expect_success()
    assert "turned away" not in nodes[0].output


def test_another_user_can_not_reach_a_sessions_memory(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1, allowed_users="nobody")
    job = start_trainers(cluster, SESSION_HOLDER, [1])
    wait_for_all(job.ranks, "attached")
    for pid in (node.pid, job.ranks[0].pid):
        spy = start_trainers(cluster, SPIES, [1], environment={"SPY": str(pid)})
        spy.expect_success()
        assert not parse_events(spy.ranks[0].output, "open way"), spy.transcript()


def test_a_user_who_takes_all_he_can_leaves_places_for_root(cluster: Cluster) -> None:
    cluster.start_nodes(1, allowed_users="nobody", max_sessions=16, start_timeout="30s")
    greedy = start_trainers(cluster, BECOME_NOBODY, [6], environment=AS_NOBODY)
    # A quarter of them wait for the others, who are refused.
    wait_until(lambda: len(parse_events(greedy.transcript(), "error")) == 2, "two are refused")
    error = parse_events(greedy.transcript(), "error")[0]
    assert error["kind"] == "ResourceExhaustedError"
    expect_words(error["text"], f"uid {NOBODY}", "has 4 trainers", "max_sessions_per_user")
    start_trainers(cluster, BECOME_NOBODY, [4]).expect_success()


def ask_as_nobody(cluster: Cluster, *arguments: str, groups: list[int]) -> str:
    """What ringctl prints to nobody, a member of `groups`."""
    program = cluster.folder / "ringctl"  # where he can read it
    if not program.exists():
        shutil.copy(binary("ringctl"), program)
    done = subprocess.run(
        [program, *arguments, "--socket", cluster.nodes[0].socket],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        user=NOBODY,
        group=groups[0],
        extra_groups=groups,
    )
    # There is no job that a name finds here.
    assert done.returncode == (1 if "--job" in arguments else 0), done.stderr
    return done.stdout


OTHERS = pwd.getpwnam("nobody").pw_gid
OPERATORS = 4242


def test_lists_show_others_jobs_to_operators_only(cluster: Cluster) -> None:
    cluster.start_nodes(1, allowed_users="nobody", operators_group=OPERATORS)
    ours = start_trainers(cluster, HOLDER, [1], job_id="job-of-root", environment={"SPY": "-"})
    theirs = start_trainers(
        cluster, HOLDER, [1], job_id="job-of-nobody", environment=AS_NOBODY | {"SPY": "-"}
    )
    wait_for_all([*ours.ranks, *theirs.ranks], "attached")
    for query in ("jobs", "queues", "comms"):
        shown = ask_as_nobody(cluster, query, groups=[OTHERS])
        assert "job-of-nobody" in shown
        assert "1 job of other users is not shown" in shown
        for secret in ("job-of-root", str(ours.ranks[0].pid)):
            assert secret not in shown + ask_as_nobody(cluster, query, "--json", groups=[OTHERS])
        assert json.loads(ask_as_nobody(cluster, query, "--json", groups=[OTHERS]))["hidden_jobs"] == 1
        # Asked for by its name there is no more to see than of a job that there is not.
        named = ask_as_nobody(cluster, query, "--job", "job-of-root", groups=[OTHERS])
        assert named == ask_as_nobody(cluster, query, "--job", "nowhere", groups=[OTHERS]).replace(
            "nowhere", "job-of-root"
        )
        for everything in (
            ask_as_nobody(cluster, query, groups=[OPERATORS]),
            cluster.ringctl(query).stdout,
        ):
            expect_words(everything, "job-of-root", "job-of-nobody")
            assert "not shown" not in everything
    status = json.loads(ask_as_nobody(cluster, "status", "--json", groups=[OTHERS]))
    assert (status["sessions"], status["jobs"]) == (2, 2)
