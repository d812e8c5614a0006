"""Ranks that disagree: the same error with both values for all concerned."""

from __future__ import annotations

import signal
import socket
import struct

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import (
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
    wait_until_joining,
)

# The last rank describes a tensor in another way; afterwards all goes on.
MISMATCHES = """
    import ringd
    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        odd = trainer.rank == trainer.size - 1
        cases = {
            "dtype": {"data_type": ringd.DataType.FLOAT64 if odd else ringd.DataType.FLOAT32},
            "shape": {"shape": (2, 2) if odd else (4,)},
            "op": {"op": ringd.ReduceOp.MAX if odd else ringd.ReduceOp.SUM},
            "kind": {"kind": ringd.CollectiveKind.BROADCAST if odd else ringd.CollectiveKind.ALLREDUCE},
            "scale": {"prescale": 0.5 if odd else 1.0},
        }
        for name, spec in cases.items():
            for attempt in range(2):  # the second time is no different
                good = trainer.submit("good")
                bad = trainer.submit(name, **spec)
                try:
                    bad.wait()
                    say("served", name=name)
                except ringd.InvalidArgumentError as error:
                    say(name, text=str(error))
                assert good.wait() == trainer.size
        for name in cases:
            assert trainer.all_reduce(name) == trainer.size
        for step in range(10):
            assert trainer.all_reduce("afterwards", float(step)) == step * trainer.size


    run(main)
"""

# The ranks describe a model's tensors each in its own way, and hear so one tensor after the other.
MANY_MISMATCHES = """
    import array
    import os
    import time

    import ringd
    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        count = 4 + trainer.rank
        numbers = trainer.context.register([ringd.TensorSpec(f"t{i}", shape=(count,)) for i in range(4)])
        values = array.array("f", [1.0] * count)
        address = values.buffer_info()[0]
        assert trainer.all_reduce("before") == trainer.size
        say("described")
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        operations = [trainer.context.submit(number, address, address) for number in numbers]
        began = time.monotonic()
        for operation in operations:
            try:
                trainer.context.wait(operation)
            except ringd.InvalidArgumentError as error:
                say("refused", text=str(error))
        say("heard", seconds=time.monotonic() - began)
        assert trainer.all_reduce("afterwards") == trainer.size


    run(main)
"""

JOINS = """
    from trainer import Trainer, run

    run(Trainer)
"""


def test_many_mismatches_are_told_soon_while_ringd_is_stopped(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    go = cluster.folder / "go"
    job = start_trainers(cluster, MANY_MISMATCHES, [2], environment={"GO": str(go)})
    wait_for_all(job.ranks, "described")
    node.send(signal.SIGSTOP)
    try:
        go.touch()
        # One answer is waited for, 5 s, and not one for each tensor.
        for event in wait_for_all(job.ranks, "heard"):
            assert event["seconds"] < 2 * 5
    finally:
        node.send(signal.SIGCONT)
    for event in wait_for_all(job.ranks, "refused"):
        expect_words(event["text"], "the ranks' descriptions differ", "can't say how")
    job.expect_success()


@pytest.mark.parametrize("layout", [[3], [2, 2]], ids=str)
def test_a_mismatch_is_told_to_all_and_the_job_goes_on(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, MISMATCHES, layout)
    both_values = {
        "dtype": ["float32", "float64"],
        "shape": ["[4]", "[2, 2]"],
        "op": ["sum", "max"],
        "kind": ["allreduce", "broadcast"],
        "scale": ["1", "0.5"],
    }
    for name, values in both_values.items():
        text = the_same_text(wait_for_all(job.ranks, name))
        expect_words(text, f"'{name}'", *values, f"rank {sum(layout) - 1}")
    job.expect_success()
    assert '"served"' not in job.transcript()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["same node", "other node"])
def test_another_size_ends_the_start_for_all(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), start_timeout="30s")
    one = start_trainers(cluster, JOINS, layout, only_ranks=[0], job_id="job")
    wait_until_joining(cluster, one.ranks[0])
    other = start_trainers(
        cluster, JOINS, layout, only_ranks=[1], job_id="job", environment={"WORLD_SIZE": "3"}
    )
    errors = wait_for_all([*one.ranks, *other.ranks], "error")
    expect_words(the_same_text(errors), "job 'job'", "size 3", "2")
    assert {error["kind"] for error in errors} == {"InvalidArgumentError"}
    start_trainers(cluster, JOINS, layout, job_id="job").expect_success()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["same node", "other node"])
def test_another_weight_ends_the_start_for_all(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), start_timeout="30s")
    one = start_trainers(cluster, JOINS, layout, only_ranks=[0], job_id="job")
    wait_until_joining(cluster, one.ranks[0])
    other = start_trainers(
        cluster, JOINS, layout, only_ranks=[1], job_id="job", environment={"RINGD_WEIGHT": "3"}
    )
    errors = wait_for_all([*one.ranks, *other.ranks], "error")
    expect_words(the_same_text(errors), "job 'job'", "weight 3", "said 1")
    assert {error["kind"] for error in errors} == {"InvalidArgumentError"}


def test_a_weight_above_the_operators_limit_is_refused(cluster: Cluster) -> None:
    cluster.start_nodes(1, max_weight=10)
    too_heavy = start_trainers(cluster, JOINS, [1], job_id="heavy", environment={"RINGD_WEIGHT": "11"})
    refused = wait_for_event(too_heavy.ranks[0], "error")
    assert refused["kind"] == "InvalidArgumentError"
    expect_words(refused["text"], "weight 11", "at most 10", "max_weight", "node0")
    start_trainers(cluster, JOINS, [1], job_id="job", environment={"RINGD_WEIGHT": "10"}).expect_success()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["same node", "other node"])
def test_two_ranks_may_not_claim_one_place(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), start_timeout="30s")
    one = start_trainers(cluster, JOINS, layout, only_ranks=[0], job_id="job")
    wait_until_joining(cluster, one.ranks[0])
    other = start_trainers(cluster, JOINS, layout, only_ranks=[1], job_id="job", environment={"RANK": "0"})
    both = [*one.ranks, *other.ranks]
    errors = wait_for_all(both, "error")
    text = the_same_text(errors)
    expect_words(text, "rank 0", *(f"pid {rank.pid}" for rank in both))
    assert {error["kind"] for error in errors} == {"AlreadyExistsError"}
    start_trainers(cluster, JOINS, layout, job_id="job").expect_success()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=["same node", "other node"])
def test_a_wrong_secret_is_refused_and_told(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), start_timeout="10s")
    right = start_trainers(cluster, JOINS, layout, only_ranks=[0], job_id="job", secret="right")
    wait_until_joining(cluster, right.ranks[0])
    wrong = start_trainers(cluster, JOINS, layout, only_ranks=[1], job_id="job", secret="wrong")
    refused = wait_for_event(wrong.ranks[0], "error")
    assert refused["kind"] == "UnauthenticatedError"
    expect_words(refused["text"], "secret", "job 'job'", "RINGD_JOB_SECRET")
    # The honest rank is not harmed at once, since anybody may guess; the deadline's error says it.
    waited = wait_for_event(right.ranks[0], "error")
    assert waited["kind"] == "DeadlineExceededError"
    expect_words(waited["text"], "rank 1 did not join", "turned away", "secret")
    assert refused["at"] < waited["at"]


def test_another_attach_version_is_refused_with_both(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(node.socket))
        connection.sendall(struct.pack("<4sI24x", b"RNGD", 99))
        reply = b""
        while len(reply) < 1024 and (part := connection.recv(1024 - len(reply))):
            reply += part
        magic, version, status, *_ = struct.unpack("<4sIi", reply[:12])
        (length,) = struct.unpack("<I", reply[64:68])
        text = reply[68 : 68 + length].decode()
        assert (magic, version, status) == (b"RNGD", 1, 9)
        expect_words(text, "version 99", "version 1")
        assert connection.recv(1) == b""
