"""What an operator sees with ringctl and the log: stalls from every node, jobs that have ended,
SIGHUP, the check."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.failures.events import (
    expect_words,
    start_trainers,
    wait_for_all,
    wait_for_event,
    wait_until_joining,
)
from tests.integration.processes import binary, clean_environment, wait_until

# Every rank reduces the same again and again, so that its bucket is learned. The last one pauses
# between two operations when the test says so.
STEPS = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        step = 0
        while True:
            if trainer.rank == trainer.size - 1 and os.path.exists(os.environ["HOLD"]):
                say("held")
                while os.path.exists(os.environ["HOLD"]):
                    time.sleep(0.01)
            trainer.all_reduce("gradient", count=65536)
            step += 1
            if step == 20:
                say("steady")


    run(main)
"""

# Hangs in its second operation.
LATE = """
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        trainer.all_reduce("warm-up")
        say("ready")
        if trainer.rank == trainer.size - 1:
            time.sleep(600)
        trainer.all_reduce("gradient")


    run(main)
"""


def ask(cluster: Cluster, node: Node, *arguments: str) -> dict[str, Any]:
    result = cluster.ringctl(*arguments, "--json", node=node)
    assert result.returncode == 0, result.stderr
    reply: dict[str, Any] = json.loads(result.stdout)
    return reply


def stalled_job(cluster: Cluster, node: Node) -> dict[str, Any]:
    (job,) = ask(cluster, node, "jobs")["jobs"]
    return job if job["state"] == "stalled" else {}


def awaited_ranks(cluster: Cluster, node: Node) -> list[tuple[int, str]]:
    """For whom a stalled job waits. Others than the culprit may come late, too."""
    stall = stalled_job(cluster, node).get("stall", {"ranks": []})
    return [(rank["rank"], rank["state"]) for rank in stall["ranks"]]


@pytest.mark.parametrize("layout", [[2, 2], [3, 1], [4]], ids=str)
def test_a_stall_is_seen_on_every_node_until_it_ends(cluster: Cluster, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout), stall_warning="1s")
    hold = cluster.folder / "hold"
    job = start_trainers(cluster, STEPS, layout, environment={"HOLD": str(hold)})
    wait_for_all(job.ranks, "steady")
    culprit = job.ranks[-1]
    hold.touch()
    wait_for_event(culprit, "held")
    os.kill(culprit.pid, signal.SIGSTOP)
    who = f"rank {culprit.number}, pid {culprit.pid} on {nodes[-1].name} (stopped)"
    for node in nodes:
        wait_until(
            lambda node=node: awaited_ranks(cluster, node) == [(culprit.number, "stopped")],  # type: ignore[misc]
            f"{node} shows the stall",
        )
        stall = stalled_job(cluster, node)["stall"]
        assert who in stall["why"]
        assert stall["seconds"] >= 1

        (communicator,) = ask(cluster, node, "comms")["communicators"]
        assert communicator["state"] == "stalled"
        awaited = [member for member in communicator["members"] if member["awaited_seconds"] > 0]
        assert [(member["rank"], member["state"]) for member in awaited] == [(culprit.number, "stopped")]

        queues = ask(cluster, node, "queues")
        assert [stalled["stall"]["why"] for stalled in queues["stalled_jobs"]] == [stall["why"]]
        for queue in queues["queues"]:
            if queue["rank"] == culprit.number:
                assert queue["state"] == "stopped"
                assert queue["awaited_seconds"] >= 1
            else:
                assert queue["state"] == "stalled", queue
                assert any(who in pending["waits_for"] for pending in queue["pending"]), queue

        for command in ("jobs", "comms", "queues"):
            text = cluster.ringctl(command, node=node).stdout
            assert "stalled" in text, text
            assert who in text, text
        assert "busy" not in cluster.ringctl("comms", node=node).stdout
    hold.unlink()
    os.kill(culprit.pid, signal.SIGCONT)
    for node in nodes:
        wait_until(
            lambda node=node: ask(cluster, node, "jobs")["jobs"][0]["state"] == "running",  # type: ignore[misc]
            f"{node} shows no stall any more",
        )


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_a_job_that_has_failed_is_looked_up_afterwards(cluster: Cluster, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout), remembered_jobs=2)
    job = start_trainers(cluster, LATE, layout, job_id="the-failed-one")
    wait_for_all(job.ranks, "ready")
    os.kill(job.ranks[-1].pid, signal.SIGKILL)
    for rank in job.ranks:
        rank.wait()
    for node in nodes:
        wait_until(lambda node=node: not ask(cluster, node, "jobs")["jobs"], "the job has ended")  # type: ignore[misc]
        (ended,) = ask(cluster, node, "jobs", "--all")["jobs"]
        assert (ended["job_id"], ended["state"], ended["size"]) == ("the-failed-one", "failed", 2)
        expect_words(ended["failure"], f"pid {job.ranks[-1].pid}", "signal 9")
        assert {member["pid"] for member in ended["local_members"]} == {
            rank.pid for rank in job.ranks if rank.node is node
        }
        assert ended["started_unix_seconds"] < ended["ended_unix_seconds"]
        assert ended["age_seconds"] > 0
        text = cluster.ringctl("jobs", "--all", node=node).stdout
        expect_words(text, ended["failure"], "LASTS")
    done = [
        start_trainers(cluster, "from trainer import Trainer, run\nrun(Trainer)", layout) for _ in range(2)
    ]
    for other in done:
        other.expect_success()
        # One after the other: the last two are kept.
    for node in nodes:
        wait_until(lambda node=node: not ask(cluster, node, "jobs")["jobs"], "the jobs have ended")  # type: ignore[misc]
        shown = ask(cluster, node, "jobs", "--all")["jobs"]
        assert {(entry["job_id"], entry["state"]) for entry in shown} == {
            (one.job_id, "done") for one in done
        }


def on_a_terminal(cluster: Cluster, columns: int, *arguments: str) -> str:
    """What ringctl shows on a terminal of so many columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    environment = clean_environment() | {"RINGD_SOCKET": str(cluster.nodes[0].socket), "NO_COLOR": "1"}
    subprocess.run([binary("ringctl"), *arguments], env=environment, stdout=its, timeout=60, check=True)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the end
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    return shown.decode()


@pytest.mark.parametrize("command", [["jobs"], ["comms"], ["queues"]], ids=" ".join)
def test_names_are_whole_but_on_a_terminal(cluster: Cluster, command: list[str]) -> None:
    (node,) = cluster.start_nodes(1)
    name = "a-job-whose-name-is-long-" + 35 * "x"
    job = start_trainers(cluster, LATE, [2], job_id=name)
    wait_for_all(job.ranks, "ready")
    assert name in cluster.ringctl(*command, node=node).stdout
    assert name in on_a_terminal(cluster, 300, *command)
    shown = on_a_terminal(cluster, 80, *command).splitlines()
    tables = [line for line in shown if not line.startswith("job ")]
    assert tables
    assert max(len(line) for line in tables) <= 80, shown


def test_missing_ranks_are_told_on_every_node_while_a_job_gathers(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2, start_timeout="120s")
    job = start_trainers(cluster, LATE, [2, 2], only_ranks=[3])
    wait_until_joining(cluster, job.ranks[0])

    def shown(node: Node) -> dict[str, Any]:
        (entry,) = ask(cluster, node, "jobs")["jobs"]
        return dict(entry)

    # Nobody is there yet where rank 0 belongs.
    assert shown(nodes[1])["missing_ranks"] == []
    assert nodes[0].peer_address in shown(nodes[1])["waits_for"]
    first = start_trainers(cluster, LATE, [2, 2], only_ranks=[0], job_id=job.job_id)
    wait_until_joining(cluster, first.ranks[0])
    for node in nodes:
        wait_until(
            lambda node=node: shown(node)["missing_ranks"] == [1, 2],  # type: ignore[misc]
            f"{node} knows who is missing",
        )
        assert "waits for ranks 1, 2\n" in cluster.ringctl("jobs", node=node).stdout


def test_sighup_reopens_the_log_and_takes_over_what_may_change(cluster: Cluster) -> None:
    log = cluster.folder / "log"
    file = cluster.folder / "ringd.toml"
    file.write_text("max_weight = 10\n")
    (node,) = cluster.start_nodes(1, log_file=log, config=file)
    log.rename(cluster.folder / "log.1")

    def said(words: str) -> int:
        return log.read_text().count(words) if log.exists() else 0

    def reload(text: str, *words: str) -> None:
        """Until the log has the words once more."""
        file.write_text(text)
        before = {word: said(word) for word in words}
        node.send(signal.SIGHUP)
        for word, count in before.items():
            wait_until(lambda word=word, count=count: said(word) > count, f"'{word}' in the log")  # type: ignore[misc]

    reload(
        'max_weight = 20\nlog_level = "debug"\nallowed_users = ["nobody"]\nchunk_bytes = "64KiB"\n',
        "need a restart: chunk_bytes",
        "taken over: allowed_users, max_weight, log_level",
    )
    assert ask(cluster, node, "status")["allowed_users"] == ["nobody"]
    weight = {"RINGD_WEIGHT": "15"}
    start_trainers(
        cluster, "from trainer import Trainer, run\nrun(Trainer)", [1], environment=weight
    ).expect_success()
    # What is wrong changes nothing, and ends nothing.
    reload('allowed_groups = ["no-such-group"]\n', "there is no group 'no-such-group'")
    assert ask(cluster, node, "status")["allowed_users"] == ["nobody"]
    reload("max_weight = 5\nnonsense = 1\n", "unknown key 'nonsense'")
    reload("max_weight = 5\n", "taken over: allowed_users, max_weight, log_level")
    job = start_trainers(cluster, "from trainer import Trainer, run\nrun(Trainer)", [1], environment=weight)
    assert "max_weight" in wait_for_event(job.ranks[0], "error")["text"]


def test_a_draining_ringd_tells_both_ages(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1, allowed_groups="nogroup", operators_group="root", drain_timeout="60s")
    job = start_trainers(cluster, LATE, [2])
    wait_for_all(job.ranks, "ready")
    text = cluster.ringctl("status").stdout
    expect_words(text, "group nogroup", "group root")
    node.may_end = True
    node.send(signal.SIGTERM)
    wait_until(lambda: "draining since" in cluster.ringctl("status").stdout, "it drains")
    status = ask(cluster, node, "status")
    assert 0 < status["draining_seconds"] < status["uptime_seconds"]
    assert ", up since " in cluster.ringctl("status").stdout


def check(*flags: str | Path, deny_code: bool = False) -> subprocess.CompletedProcess[str]:
    """`ringd --check-config`; with `deny_code`, as under systemd's MemoryDenyWriteExecute."""

    def deny() -> None:
        pr_set_mdwe, refuse_exec_gain = 65, 1
        if deny_code:
            ctypes.CDLL(None).prctl(pr_set_mdwe, refuse_exec_gain, 0, 0, 0)

    return subprocess.run(
        [binary("ringd"), "--config", "/dev/null", "--check-config", *flags],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=deny,
    )


def test_the_check_fails_on_what_fails_at_start_and_makes_nothing(cluster: Cluster) -> None:
    wrong = {
        "--allowed-groups": "no-such-group",
        "--peer-address": "192.0.2.77:7117",
        "--state-dir": "/proc/none/here",
        "--log-file": "/proc/none/log",
        "--ready-file": "/proc/none/ready",
    }
    result = check(*[part for flag in wrong.items() for part in flag])
    assert result.returncode == 1
    for setting in wrong:
        assert setting.removeprefix("--").replace("-", "_") in result.stderr
    assert "is good" not in result.stdout
    # One line each, all of ringd's own.
    assert all(line.startswith("ringd: ") for line in result.stderr.splitlines()), result.stderr

    folder = cluster.folder
    result = check(
        "--state-dir", folder / "state", "--log-file", folder / "log", "--ready-file", folder / "ready",
        "--socket", folder / "socket", "--peer-address", "127.0.0.1:0",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("backend", ["tcp", "ucx"])
@pytest.mark.parametrize("transports", ["tcp,self", "all"])
def test_nothing_is_said_where_code_may_not_be_changed(backend: str, transports: str) -> None:
    result = check(
        "--backend", backend, "--transports", transports, "--peer-address", "127.0.0.1:0", deny_code=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_ringd_itself_never_loads_ucx(cluster: Cluster) -> None:
    for backend in ("tcp", "ucx"):
        (node,) = cluster.start_nodes(1, backend=backend)
        assert "libucp" not in Path(f"/proc/{node.pid}/maps").read_text()
