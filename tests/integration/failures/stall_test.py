"""A rank that keeps the others waiting is named: in warnings, by ringctl, and by the deadline's
error."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, JobRun, Rank
from tests.integration.failures.events import (
    BUSY_S,
    expect_within,
    expect_words,
    parse_events,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
    wait_for_warning,
)
from tests.integration.processes import PATIENCE_S, wait_until

# Every rank but the last submits and waits. The last waits for the test's word, and then comes
# along.
LATE = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        if trainer.rank == trainer.size - 1:
            say("late")
            while not os.path.exists(os.environ["GO"]):
                time.sleep(0.01)
        else:
            say("waits")
        assert trainer.all_reduce("gradient") == trainer.size
        assert trainer.all_reduce("more") == trainer.size


    run(main)
"""

# One large tensor of ordinary memory; no rank's memory in the arena has been touched before.
LARGE = """
    import array

    import ringd
    from trainer import Trainer, run, say

    COUNT = 32 << 20  # 128 MiB


    def main():
        trainer = Trainer()
        values = array.array("f", bytes(4 * COUNT))
        (registration,) = trainer.context.register([ringd.TensorSpec("large", shape=(COUNT,))])
        values[0] = values[COUNT // 2] = values[-1] = trainer.rank + 1
        assert trainer.all_reduce("warm-up") == trainer.size
        say("submits")
        address = values.buffer_info()[0]
        number = trainer.context.submit(registration, address, address)
        say("submitted")
        trainer.context.wait(number)
        assert values[0] == values[COUNT // 2] == values[-1] == sum(range(1, trainer.size + 1))
        assert values[1] == values[-2] == 0


    run(main)
"""


LARGE_MIB = 128
STOP_ATTEMPTS = 8


def shared_memory_mib(pid: int) -> int:
    """All that it may have if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^RssShmem:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) >> 10 if found is not None else LARGE_MIB


def stop_amid_copying(cluster: Cluster, layout: list[int]) -> JobRun:
    """A job of LARGE whose last rank is stopped when some pieces of its tensor are in the arena.
    All of them take some 50 ms, which a busy machine may let pass: then another one."""
    for _ in range(STOP_ATTEMPTS):
        job = start_trainers(cluster, LARGE, layout)
        late = job.ranks[-1]
        wait_for_event(late, "submits")
        deadline = time.monotonic() + PATIENCE_S
        while shared_memory_mib(late.pid) <= 24:
            assert time.monotonic() < deadline, "no piece is copied"
        late.send(signal.SIGSTOP)
        if (
            late.running()
            and not parse_events(late.output, "submitted")
            and shared_memory_mib(late.pid) < LARGE_MIB
        ):
            return job
        late.send(signal.SIGCONT)
        job.expect_success()
    pytest.fail(f"of {STOP_ATTEMPTS} ranks none was stopped in time")


def waits_for(cluster: Cluster, rank: Rank, tensor: str) -> str:
    """What `ringctl queues` says of whom a rank's tensor waits for."""
    result = cluster.ringctl("queues", "--json", node=rank.node)
    assert result.returncode == 0, result.stderr
    for queue in json.loads(result.stdout)["queues"]:
        for pending in queue.get("pending", []):
            if queue["rank"] == rank.number and pending["name"] == tensor:
                return "; ".join(pending.get("waits_for", []))
    return ""


@pytest.mark.parametrize("layout", [[3], [2, 1], [1, 2]], ids=str)
@pytest.mark.parametrize("stopped", [False, True], ids=["never submits", "stopped"])
def test_waiting_ranks_are_warned_and_go_on(cluster: Cluster, layout: list[int], stopped: bool) -> None:
    nodes = cluster.start_nodes(len(layout), stall_warning="1s")
    go = cluster.folder / "go"
    job = start_trainers(cluster, LATE, layout, environment={"GO": str(go)})
    *waiting, late = job.ranks
    wait_for_event(late, "late")
    if stopped:
        os.kill(late.pid, signal.SIGSTOP)
        go.touch()  # it would go on if it could
    began = max(event["at"] for event in wait_for_all(waiting, "waits"))
    words = [f"rank {late.number}", f"pid {late.pid}", nodes[-1].name, *["stopped"] * stopped]
    for rank in waiting:
        warning = wait_for_warning(rank, f"rank {rank.number} is waiting", *words, "'gradient'")
        assert ("stopped" in warning) == stopped
        wait_until(
            lambda rank=rank: all(word in waits_for(cluster, rank, "gradient") for word in words),  # type: ignore[misc]
            f"ringctl queues tells for whom {rank} waits",
        )
    # A second after the warning time is early enough.
    assert time.monotonic() - began < 5 + BUSY_S
    go.touch()
    if stopped:
        os.kill(late.pid, signal.SIGCONT)
    job.expect_success()


@pytest.mark.over_ucx
@pytest.mark.parametrize("layout", [[1, 1], [2, 2]], ids=str)
def test_a_rank_that_stops_in_the_middle_of_copying_is_named_and_may_go_on(
    cluster: Cluster, layout: list[int]
) -> None:
    nodes = cluster.start_nodes(len(layout), stall_warning="1s")
    job = stop_amid_copying(cluster, layout)
    *waiting, late = job.ranks
    wait_for_all(waiting, "submitted")
    for rank in waiting:
        wait_for_warning(rank, f"rank {late.number}", f"pid {late.pid}", nodes[-1].name, "stopped", "'large'")
    os.kill(late.pid, signal.SIGCONT)
    job.expect_success()


@pytest.mark.over_ucx
@pytest.mark.parametrize("layout", [[3], [2, 1]], ids=str)
@pytest.mark.parametrize("stopped", [False, True], ids=["never submits", "stopped"])
def test_an_operation_timeout_makes_it_an_error(cluster: Cluster, layout: list[int], stopped: bool) -> None:
    nodes = cluster.start_nodes(len(layout), operation_timeout="5s", stall_warning="20s")
    go = cluster.folder / "go"
    job = start_trainers(cluster, LATE, layout, environment={"GO": str(go)})
    *waiting, late = job.ranks
    wait_for_event(late, "late")
    if stopped:
        os.kill(late.pid, signal.SIGSTOP)
    began = max(event["at"] for event in wait_for_all(waiting, "waits"))
    errors = wait_for_all(waiting, "error")
    expect_within(errors, began, 8)
    text = the_same_text(errors)
    assert {error["kind"] for error in errors} == {"JobFailedError"}
    words = ["'gradient'", "5 s", f"rank {late.number}", f"pid {late.pid}", nodes[-1].name]
    expect_words(text, *words, *["stopped"] * stopped)
    # How long it had waited at some time before would contradict the timeout.
    assert "since" not in text, text
    # The late one hears the same once it asks.
    go.touch()
    if stopped:
        os.kill(late.pid, signal.SIGCONT)
    assert wait_for_event(late, "error")["text"] == text
