"""The last small tensors of steps, which ranks of several nodes carry out themselves in the wait that follows."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.cluster import Cluster, JobRun
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    wait_for_all,
    wait_for_event,
)

# Steps of a tensor of 2 MiB and two small ones; rank r adds r + 1 + step, and the second small one adds ten times that.
STEPS = """
    import array
    import os
    import time

    import ringd
    from trainer import Trainer, run, say

    COUNTS = (1 << 19, 3, 1000)
    FOLDER = os.environ["FOLDER"]


    class Steps:
        def __init__(self):
            trainer = Trainer()
            self.rank, self.size, self.context = trainer.rank, trainer.size, trainer.context
            specs = [ringd.TensorSpec(f"t{i}", shape=(count,)) for i, count in enumerate(COUNTS)]
            self.registrations = self.context.register(specs)
            self.values = [array.array("f", bytes(4 * count)) for count in COUNTS]
            self.step = 0

        def submit(self, tensors=(0, 1, 2)):
            self.step += 1
            self.numbers = {}
            for tensor in tensors:
                values = self.values[tensor]
                values[0] = values[-1] = (self.rank + 1 + self.step) * (10 if tensor == 2 else 1)
                address = values.buffer_info()[0]
                self.numbers[tensor] = self.context.submit(self.registrations[tensor], address, address)

        def wait(self):
            self.context.wait_all(list(self.numbers.values()))
            expected = self.size * (self.size + 1) / 2 + self.size * self.step
            for tensor in self.numbers:
                sums = self.values[tensor][0], self.values[tensor][-1]
                right = expected * (10 if tensor == 2 else 1)
                assert sums == (right, right), (self.rank, self.step, tensor, sums, right)

        def run(self, count):
            for _ in range(count):
                self.submit()
                self.wait()

        def wait_for_file(self, name):
            deadline = time.monotonic() + 30
            while not os.path.exists(os.path.join(FOLDER, name)):
                assert time.monotonic() < deadline, name
                time.sleep(0.005)

        def make_file(self, name):
            open(os.path.join(FOLDER, name), "w").close()
"""
# Steps before whose end the tail is learned.
LEARNED = 3


def start(cluster: Cluster, layout: list[int], main: str, **variables: int) -> JobRun:
    environment = {name: str(value) for name, value in variables.items()} | {"FOLDER": str(cluster.folder)}
    return start_trainers(cluster, STEPS + main, layout, environment=environment)


COUNTED = """

    def main():
        steps = Steps()
        for part, count in enumerate((50, 100)):
            steps.run(count)
            say(f"part {part}")
            steps.wait_for_file(f"seen {part}")


    run(main)
"""


@pytest.mark.parametrize("layout", [[1, 1], [2, 1]], ids=str)
def test_the_tail_of_each_step_is_one_operation_of_the_ranks(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(2)
    job = start(cluster, layout, COUNTED)
    steps = 0
    before = [0, 0]
    for part, count in enumerate((50, 100)):
        wait_for_all(job.ranks, f"part {part}", 60)
        steps += count
        for node, fast_path in enumerate(cluster.fast_paths(job)):
            completed = int(fast_path.get("completed", 0))
            given_up = int(fast_path.get("given_up", 0))
            # On a busy machine a rank may be so late that the others don't wait for it there.
            assert completed - before[node] >= count * 3 // 4, fast_path
            assert completed + given_up <= steps - LEARNED, fast_path
            before[node] = completed
        (cluster.folder / f"seen {part}").touch()
    job.expect_success()


# Rank 0 has submitted all of a step, and waits for what rank 1 does only after the step.
WAITS_OUTSIDE = """

    def main():
        steps = Steps()
        for times in range(3):
            steps.run(10)
            if steps.rank == 0:
                steps.submit()
                steps.wait_for_file(f"done {times}")
                steps.wait()
            else:
                began = time.monotonic()
                steps.submit()
                steps.wait()
                say("waited", seconds=time.monotonic() - began)
                steps.make_file(f"done {times}")
        steps.run(10)


    run(main)
"""


def test_a_rank_that_waits_for_something_else_keeps_nobody_waiting(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    began = time.monotonic()
    job = start(cluster, [1, 1], WAITS_OUTSIDE)
    job.expect_success(30)
    assert time.monotonic() - began < 15
    waited = [json.loads(line)["seconds"] for line in job.ranks[1].output.splitlines() if '"waited"' in line]
    assert len(waited) == 3
    # Given up by this rank after a tenth of a second, and by ringd's word to the other soon after.
    assert max(waited) < 3, waited


# Rank VICTIM dies while the other waits for its tail: when it holds it, or when it has not come to it.
DIES = """
    import signal


    def main():
        steps = Steps()
        steps.run(20)
        if steps.rank == int(os.environ["VICTIM"]):
            steps.wait_for_file("waits")
            time.sleep(0.02)
            steps.submit((0, 1, 2) if os.environ["HOLDS"] == "1" else (0,))
            say("dies")
            os.kill(os.getpid(), signal.SIGKILL)
        steps.submit()
        steps.make_file("waits")
        steps.wait()


    run(main)
"""


@pytest.mark.parametrize("victim", [0, 1], ids=["root", "other node"])
@pytest.mark.parametrize("holds", [0, 1], ids=["not come to it", "holds it"])
def test_a_killed_rank_is_named_by_who_waits_for_its_tail(cluster: Cluster, victim: int, holds: int) -> None:
    cluster.start_nodes(2)
    job = start(cluster, [1, 1], DIES, VICTIM=victim, HOLDS=holds)
    killed, other = job.ranks[victim], job.ranks[1 - victim]
    died = wait_for_event(killed, "dies")["at"]
    error = wait_for_event(other, "error")
    expect_words(error["text"], f"rank {victim}, pid {killed.pid}", killed.node.name)
    expect_within([error], died, 5)


# All leave the last small tensor out for a while; then rank 0 alone submits the two in another order.
DEPARTS = """

    def main():
        steps = Steps()
        steps.run(10)
        for _ in range(10):
            steps.submit((0, 1))
            steps.wait()
        steps.run(10)
        for step in range(5):
            steps.submit((0, 2, 1) if steps.rank == 0 else (0, 1, 2))
            steps.wait()
        steps.run(10)
        # Rank 0 leaves one out, and submits it after a wait of its own, while rank 1 waits for it.
        for step in range(5):
            if steps.rank == 0:
                steps.submit((0, 1))
                steps.context.wait_all(list(steps.numbers.values()))
                steps.step -= 1
                steps.submit((2,))
            else:
                steps.submit()
            steps.wait()
        steps.run(10)


    run(main)
"""


def test_sums_are_right_when_a_rank_departs_from_its_steps(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    start(cluster, [1, 1], DEPARTS).expect_success(40)


# One late step at one rank is no reason to be slow for long.
LATE_ONCE = """

    def main():
        steps = Steps()
        steps.run(20)
        steps.submit()
        if steps.rank == int(os.environ["LATE"]):
            time.sleep(0.4)
        steps.wait()
        slow = 0
        for _ in range(40):
            began = time.monotonic()
            steps.run(1)
            slow += time.monotonic() - began > 0.09
        say("ran", slow=slow)
        steps.wait_for_file("seen")


    run(main)
"""


@pytest.mark.parametrize("late", [0, 1], ids=["root", "other node"])
def test_one_late_wait_does_not_make_the_next_steps_slow(cluster: Cluster, late: int) -> None:
    cluster.start_nodes(2)
    job = start(cluster, [1, 1], LATE_ONCE, LATE=late)
    slow = [event["slow"] for event in wait_for_all(job.ranks, "ran", 60)]
    entries = cluster.fast_paths(job)
    (cluster.folder / "seen").touch()
    job.expect_success()
    for fast_path in entries:
        assert int(fast_path.get("completed", 0)) >= 40, (slow, entries)
    assert max(slow) <= 2, (slow, entries)
