"""Full rings and full arenas: the submitter waits or is told, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import expect_words, start_trainers, wait_for_all, wait_for_event

pytestmark = pytest.mark.one_user

FLOODS = """
    from trainer import Trainer, run


    def main():
        trainer = Trainer()
        for count in (4, 5000):
            operations = [
                trainer.submit(f"tensor {i % 50}", float(i), count=count) for i in range(1000)
            ]
            for i, operation in enumerate(operations):
                assert operation.wait() == i * trainer.size, i


    run(main)
"""

# Rank 0 fills its ring while the others submit nothing.
TRIES = """
    import os
    import time

    import ringd
    from trainer import Trainer, run, say, say_error


    def main():
        trainer = Trainer()
        go = os.environ["GO"]
        operations = []
        if trainer.rank == 0:
            try:
                for i in range(100):
                    operations.append(trainer.submit(f"tensor {i}", float(i), call="try_submit"))
            except ringd.ResourceExhaustedError as error:
                say("full", accepted=len(operations), text=str(error))
            open(go, "w").close()
        else:
            while not os.path.exists(go):
                time.sleep(0.01)
        # What was refused is submitted again, and what was accepted is not lost.
        for i in range(len(operations), 100):
            operations.append(trainer.submit(f"tensor {i}", float(i)))
        for i, operation in enumerate(operations):
            assert operation.wait() == i * trainer.size, i


    run(main)
"""

ARENA = """
    import ringd
    from trainer import Trainer, run, say

    MIB = 1 << 20


    def main():
        trainer = Trainer()
        context = trainer.context
        kept = []
        for name, call in {
            "alloc": lambda: context.arena_alloc(16 * MIB),
            "submit": lambda: trainer.submit("large", count=4 * MIB),
            "fill": lambda: [kept.append(context.arena_alloc(MIB)) for _ in range(100)],
        }.items():
            try:
                call()
            except ringd.ResourceExhaustedError as error:
                say(name, text=str(error))
        for address in kept:
            context.arena_free(address)
        # The arena serves again, also more than fits at once: who is told to try again waits for a
        # result first.
        operations = []
        refused = 0
        for i in range(24):
            while True:
                try:
                    operations.append((i, trainer.submit(f"tensor {i}", float(i), count=MIB // 4)))
                    break
                except ringd.ResourceExhaustedError:
                    refused += 1
                    value, operation = operations.pop(0)
                    assert operation.wait() == value * trainer.size, value
        for value, operation in operations:
            assert operation.wait() == value * trainer.size, value
        assert refused > 0


    run(main)
"""


@pytest.mark.parametrize("layout", [[2], [1, 2]], ids=str)
def test_more_submissions_than_the_ring_holds(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), submission_ring_capacity=16)
    start_trainers(cluster, FLOODS, layout).expect_success()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_trying_a_full_ring_says_so(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), submission_ring_capacity=16)
    job = start_trainers(cluster, TRIES, layout, environment={"GO": str(cluster.folder / "go")})
    full = wait_for_event(job.ranks[0], "full")
    assert full["accepted"] == 16
    expect_words(full["text"], "16", "submission_ring_capacity")
    job.expect_success()


def test_what_does_not_fit_the_arena_names_limit_and_setting(cluster: Cluster) -> None:
    cluster.start_nodes(1, arena_bytes="8MiB")
    job = start_trainers(cluster, ARENA, [2])
    for name in ("alloc", "submit", "fill"):
        for event in wait_for_all(job.ranks, name):
            expect_words(event["text"], "8 MiB", "arena_bytes")
    job.expect_success()
