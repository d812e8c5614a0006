"""Small operations that ranks of several nodes carry out between themselves, and what sends them to
ringd."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import start_trainers, wait_for_all
from tests.integration.kept_trial import start_nodes_of_a_tree

STEPS = 200

# Rank r adds r + 1. `MIX` says how often a rank submits to ringd instead, each as its own dice
# fall.
SUMS = """
    import os
    import random
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        dice = random.Random(trainer.rank)
        ranks = trainer.size * (trainer.size + 1) / 2
        count = int(os.environ["COUNT"])
        mix = float(os.environ["MIX"])
        for step in range(int(os.environ["STEPS"])):
            call = "submit" if dice.random() < mix else "submit_awaited"
            operation = trainer.submit(f"loss {step % 3}", trainer.rank + 1 + step, count, call=call)
            result = operation.wait()
            assert result == ranks + trainer.size * step, (trainer.rank, step, result)
            assert all(value == result for value in operation.values[:count])
        say("summed")
        while not os.path.exists(os.environ["END"]):
            time.sleep(0.01)


    run(main)
"""


def run(
    cluster: Cluster, layout: list[int], *, steps: int = STEPS, count: int = 4, mix: float = 0.0
) -> list[dict[str, Any]]:
    """What `ringctl comms` says of the rank exchange on each node, after the sums."""
    end = cluster.folder / "end"
    end.unlink(missing_ok=True)
    environment = {"STEPS": str(steps), "COUNT": str(count), "MIX": str(mix), "END": str(end)}
    job = start_trainers(cluster, SUMS, layout, environment=environment)
    wait_for_all(job.ranks, "summed")
    shown = cluster.rank_exchanges(job)
    end.touch()
    job.expect_success()
    assert len(shown) == len(layout)
    return shown


def expect_most_on(shown: list[dict[str, Any]]) -> None:
    for exchange in shown:
        assert exchange.get("open"), exchange
        # On a busy machine a rank may be so late that the others don't wait for it there; after
        # three times in a row of one tensor they leave that out.
        assert int(exchange.get("completed", 0)) >= STEPS // 4
        assert int(exchange.get("completed", 0)) + int(exchange.get("given_up", 0)) <= STEPS


@pytest.mark.parametrize("layout", [[1, 1], [2, 1], [2, 2], [1, 1, 1]], ids=str)
def test_ranks_add_small_numbers_themselves(cluster: Cluster, layout: list[int]) -> None:
    # Whether three nodes find it worth while is measured; here it shall not depend on that.
    cluster.start_nodes(len(layout), flat_all_reduce_bytes="8KiB")
    expect_most_on(run(cluster, layout))


@pytest.mark.parametrize("count", [4, 1000])
def test_ranks_of_many_nodes_add_small_numbers_by_a_tree(cluster: Cluster, count: int) -> None:
    start_nodes_of_a_tree(cluster)
    shown = run(cluster, [1, 1, 1, 1, 2, 1], count=count)
    expect_most_on(shown)
    # One number goes through one node, a thousand don't.
    assert all(64 <= int(entry["flat_bytes"]) < 4000 <= int(entry["limit_bytes"]) for entry in shown), shown


def test_what_is_too_large_goes_through_ringd(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    for exchange in run(cluster, [1, 1], steps=5, count=20_000):
        assert exchange.get("open")
        assert int(exchange.get("completed", 0)) == 0


def test_ranks_may_differ_in_the_way_they_take(cluster: Cluster) -> None:
    cluster.start_nodes(2)
    for exchange in run(cluster, [2, 1], steps=30, mix=0.3):
        assert int(exchange.get("given_up", 0)) > 0


def test_a_node_may_be_told_to_do_without(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    cluster.start_nodes(1, rank_exchange="false")
    for exchange in run(cluster, [1, 1], steps=5):
        assert not exchange.get("open")
        assert "node1" in exchange["why_not"]
        assert int(exchange.get("completed", 0)) == 0
