"""A trainer dies with tensors in flight: its job hears who and how within a second, other jobs go
on."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import RINGD_UID, Cluster
from tests.integration.failures.events import (
    WITH_TRAINER,
    expect_within,
    expect_words,
    parse_events,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
)
from tests.integration.failures.undisturbed import UndisturbedJob
from tests.integration.processes import kernel_shows_exits, python, wait_until

# Rank VICTIM lacks one tensor, so the others wait for all that it is fused or ordered with.
WAITS_FOR_VICTIM = """
    import os
    import signal
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        victim = int(os.environ["VICTIM"])
        operations = [
            trainer.submit(f"gradient {i}", count=1000) for i in range(5) if trainer.rank != victim or i < 2
        ]
        if trainer.rank == victim:
            trainer.submit("loss")  # which the others lack
            # Its neighbours' are in flight by then, whatever order the ranks come in.
            time.sleep(float(os.environ.get("DIES_AFTER", "0")))
            say("in flight")
            if "DIES_AFTER" in os.environ:
                say("dies", pid=os.getpid())
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        say("in flight")
        operations[-1].wait()


    run(main)
"""


@pytest.mark.tells_exit
@pytest.mark.over_ucx
@pytest.mark.parametrize(
    ("layout", "victim"),
    [([3], 1), ([2, 2], 1), ([2, 2], 2)],
    ids=["one node", "coordinator's", "other node"],
)
def test_all_other_ranks_hear_of_a_killed_one(cluster: Cluster, layout: list[int], victim: int) -> None:
    nodes = cluster.start_nodes(len(layout))
    undisturbed = UndisturbedJob(cluster, [2] if len(layout) == 1 else [1, 1])
    job = start_trainers(cluster, WAITS_FOR_VICTIM, layout, environment={"VICTIM": str(victim)})
    wait_for_all(job.ranks, "in flight")
    time.sleep(0.1)
    killed = time.monotonic()
    # Not Rank.send: nobody reaps the process at once, as with a launcher that is busy.
    os.kill(job.ranks[victim].pid, signal.SIGKILL)
    survivors = [rank for rank in job.ranks if rank.number != victim]
    errors = wait_for_all(survivors, "error")
    expect_within(errors, killed, 1.0)
    text = the_same_text(errors)
    home = nodes[0 if victim < layout[0] else 1]
    # The script's name, and not Python's.
    name = f"pid {job.ranks[victim].pid} on {home.name} ({job.program.name})"
    expect_words(text, f"rank {victim}", name, "was killed by signal 9 (Killed)", "in flight")
    assert re.search(r"'(gradient \d|loss)'", text), text
    assert {error["kind"] for error in errors} == {"JobFailedError"}
    assert [rank.wait() for rank in survivors] == [3] * len(survivors)
    undisturbed.finish()


@pytest.mark.one_user
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("layout", [[3], [1, 2]], ids=str)
def test_a_death_that_nobody_makes_visible_is_not_told_as_an_exit(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.run_ringd_as(RINGD_UID)
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, WAITS_FOR_VICTIM, layout, environment={"VICTIM": "1"})
    wait_for_all(job.ranks, "in flight")
    killed = time.monotonic()
    os.kill(job.ranks[1].pid, signal.SIGKILL)  # and nobody reaps it
    errors = wait_for_all([job.ranks[0], job.ranks[2]], "error")
    expect_within(errors, killed, 2.5)
    text = the_same_text(errors)
    expect_words(text, "rank 1", f"pid {job.ranks[1].pid}", "ended; how is not visible to ringd, while")
    assert "exited" not in text, text


@pytest.mark.one_user
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not kernel_shows_exits(), reason="this kernel is older than 6.15")
def test_the_ranks_of_its_node_hear_of_a_death_before_its_launcher_does(cluster: Cluster) -> None:
    cluster.run_ringd_as(RINGD_UID)
    (node,) = cluster.start_nodes(1)
    job = start_trainers(cluster, WAITS_FOR_VICTIM, [3], environment={"VICTIM": "1"})
    wait_for_all(job.ranks, "in flight")
    victim = job.ranks[1]
    survivors = [job.ranks[0], job.ranks[2]]
    os.kill(victim.pid, signal.SIGKILL)  # and nobody has reaped it so far
    word = f"ringd: rank 1, pid {victim.pid} on {node.name} ({job.program.name}), has ended; how"
    wait_until(lambda: all(word in rank.output for rank in survivors), "they hear that it has ended")
    victim.wait()
    text = the_same_text(wait_for_all(survivors, "error"))
    # A machine that is very busy may have reaped it too late.
    assert "was killed by signal 9" in text or "how is not visible" in text, text
    assert all(rank.output.count("has ended") == 1 for rank in survivors)


EXITS_IN_THE_MIDDLE = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        if trainer.rank == 1:
            say("in flight")
            os._exit(int(os.environ["CODE"]))
        trainer.all_reduce("gradient")


    run(main)
"""


@pytest.mark.tells_exit
@pytest.mark.parametrize("code", [0, 5])
def test_an_exit_code_is_told_where_it_is_proved(cluster: Cluster, code: int) -> None:
    cluster.start_nodes(1)
    job = start_trainers(cluster, EXITS_IN_THE_MIDDLE, [3], environment={"CODE": str(code)})
    errors = wait_for_all([job.ranks[0], job.ranks[2]], "error")
    expect_words(the_same_text(errors), "rank 1", f"exited with code {code}", "in flight")


@pytest.mark.tells_exit
@pytest.mark.parametrize("victim", [0, 2])
def test_a_launcher_that_ends_the_other_ranks_does_not_become_the_cause(
    cluster: Cluster, victim: int
) -> None:
    (node,) = cluster.start_nodes(1)
    job = start_trainers(cluster, WAITS_FOR_VICTIM, [3], environment={"VICTIM": str(victim)})
    wait_for_all(job.ranks, "in flight")
    os.kill(job.ranks[victim].pid, signal.SIGKILL)
    # As torchrun does: it finds one dead, and ends the rest.
    wait_until(lambda: not job.ranks[victim].running(), "the victim is reaped")
    for rank in job.ranks:
        rank.send(signal.SIGTERM)
    job.wait()
    node.expect_output("job ended")
    told = [line for line in node.output.splitlines() if "job failed: " in line]
    assert len(told) == 1, node.output
    expect_words(told[0], f"rank {victim}, pid {job.ranks[victim].pid}", "signal 9", "in flight")
    assert "before all ranks had joined" not in node.output, node.output


# Rank 1 becomes another program: its connection ends, its process does not.
BECOMES_ANOTHER = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        if trainer.rank != 0:
            say("in flight")
        if trainer.rank == 1:
            time.sleep(0.3)
            os.execv("/bin/sleep", ["sleep", "60"])
        trainer.all_reduce("gradient")


    run(main)
"""


def test_a_death_that_waits_for_its_word_is_not_told_as_one_before_the_start(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    job = start_trainers(cluster, BECOMES_ANOTHER, [3])
    stat = Path(f"/proc/{job.ranks[1].pid}/stat")
    wait_until(lambda: "(sleep) S" in stat.read_text(), "rank 1 is another program, and has come to sleep")
    os.kill(job.ranks[2].pid, signal.SIGKILL)  # while ringd still waits for what became of rank 1
    error = wait_for_event(job.ranks[0], "error")
    expect_words(error["text"], "closed its connection to ringd without leaving the job while", "in flight")
    expect_words(error["text"], "rank 1, ")
    job.ranks[1].send(signal.SIGKILL)
    node.expect_output("job ended")
    assert "before all ranks had joined" not in node.output, node.output


# Tensors of 4 MiB, four in flight, STEPS times.
SUMS_LARGE_TENSORS = """
    import array
    import os

    import ringd
    from trainer import Trainer, run, say

    COUNT = 1 << 20


    def main():
        trainer = Trainer()
        specs = [ringd.TensorSpec(f"large {i}", shape=(COUNT,)) for i in range(4)]
        registrations = trainer.context.register(specs)
        tensors = [array.array("f", bytes(4 * COUNT)) for _ in specs]
        for step in range(int(os.environ["STEPS"])):
            numbers = []
            for registration, tensor in zip(registrations, tensors):
                tensor[0] = tensor[-1] = 1.0
                address = tensor.buffer_info()[0]
                numbers.append(trainer.context.submit(registration, address, address))
            if step == 3:
                say("in flight")
            for number, tensor in zip(numbers, tensors):
                trainer.context.wait(number, -1)
                assert tensor[0] == tensor[-1] == trainer.size


    run(main)
"""


@pytest.mark.tells_exit
@pytest.mark.over_ucx
@pytest.mark.parametrize("victim", [1, 3], ids=["coordinator's", "other node"])
def test_a_killed_rank_s_tensors_may_be_at_reducer_threads(cluster: Cluster, victim: int) -> None:
    cluster.start_nodes(2, reducer_threads=2)
    job = start_trainers(cluster, SUMS_LARGE_TENSORS, [2, 2], environment={"STEPS": "1000000"})
    wait_for_all(job.ranks, "in flight")
    time.sleep(0.2)
    killed = time.monotonic()
    os.kill(job.ranks[victim].pid, signal.SIGKILL)
    survivors = [rank for rank in job.ranks if rank.number != victim]
    errors = wait_for_all(survivors, "error")
    expect_within(errors, killed, 3.0)
    expect_words(the_same_text(errors), f"rank {victim}", "signal 9")
    # Both ringds have let go of everything and go on.
    again = start_trainers(cluster, SUMS_LARGE_TENSORS, [2, 2], environment={"STEPS": "5"})
    again.expect_success()


@pytest.mark.one_user
@pytest.mark.parametrize("nodes", [1, 2])
def test_ringctl_run_says_how_a_rank_was_killed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    program = cluster.folder / "program.py"
    program.write_text(textwrap.dedent(WAITS_FOR_VICTIM))
    for name, value in (WITH_TRAINER | {"VICTIM": "1", "DIES_AFTER": "0.5"}).items():
        monkeypatch.setenv(name, value)
    layout = ["--nodes", str(nodes)] if nodes > 1 else []
    result = cluster.ringctl("run", *layout, "-n", "2", "--", python(), program)
    output = result.stdout + result.stderr
    assert result.returncode == 1, output
    (death,) = parse_events(output, "dies")
    errors = parse_events(output, "error")
    assert len(errors) == nodes * 2 - 1, output
    expect_within(errors, death["at"], 1.0)
    words = ("rank 1", f"pid {death['pid']}", "(program.py)", "signal 9", "in flight")
    expect_words(the_same_text(errors), *words)


ENDS_BEFORE_IT_JOINS = """
    import os
    import sys

    if os.environ["RANK"] == "1":
        sys.exit(0)

    from trainer import Trainer, run

    run(Trainer)
"""


@pytest.mark.one_user
def test_ringctl_run_does_not_wait_for_a_rank_that_has_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = cluster.folder / "program.py"
    program.write_text(textwrap.dedent(ENDS_BEFORE_IT_JOINS))
    for name, value in WITH_TRAINER.items():
        monkeypatch.setenv(name, value)
    result = cluster.ringctl("run", "-n", "2", "--", python(), program)
    output = result.stdout + result.stderr
    assert result.returncode == 1, output
    (error,) = parse_events(output, "error")
    expect_words(error["text"], "rank 1", "exited with code 0 before it had joined")


STAYS_AFTER_THE_FAILURE = """
    import time

    import ringd
    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        for step in range(7):
            assert trainer.all_reduce("gradient", count=1000) == trainer.size
        say("in flight")
        if trainer.rank == 1:
            time.sleep(60)
        try:
            trainer.all_reduce("gradient", count=1000)
        except ringd.RingdError:
            say("failed")
        time.sleep(60)


    run(main)
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["one node", "two nodes"])
def test_a_failed_jobs_communicator_is_shown_as_long_as_the_job(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, STAYS_AFTER_THE_FAILURE, layout)

    def shown(command: str, key: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(cluster.ringctl(command, "--json").stdout).get(key, [])
        return found

    wait_for_all(job.ranks, "in flight")
    (before,) = shown("comms", "communicators")
    assert before["state"] == "running"
    os.kill(job.ranks[1].pid, signal.SIGKILL)
    wait_for_all(job.ranks[:1], "failed")
    # ringd soon gives the communicator's memory back, and then it works no more; what there was to
    # say stays.
    wait_until(
        lambda: all(comm["operations_per_second"] == 0 for comm in shown("comms", "communicators")), "idle"
    )
    (after,) = shown("comms", "communicators")
    (failed,) = shown("jobs", "jobs")
    assert after["state"] == failed["state"] == "failed"
    assert after["failure"] == failed["failure"] != ""
    kept = (
        "communicator",
        "generation",
        "size",
        "node_count",
        "backend",
        "coordinator",
        "tensors",
        "operations",
    )
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    local = [member["state"] for member in after["members"] if member["node_index"] == 0]
    assert local == (["running", "dead"] if len(layout) == 1 else ["running"])

    os.kill(job.ranks[0].pid, signal.SIGKILL)
    wait_until(lambda: not shown("jobs", "jobs"), "the job is gone")
    assert not shown("comms", "communicators")
