"""Every function of ringd.torch on real ringds, on one node and on several."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

PROGRAMS = Path(__file__).parent / "programs"
# Ranks on each node.
LAYOUTS = [[4], [2, 2], [1, 2]]


def run(cluster: Cluster, program: str, layout: list[int], **settings: object) -> None:
    cluster.start_nodes(len(layout), **settings)
    environment = {"PYTHONPATH": str(PROGRAMS)}
    job = cluster.start_job((PROGRAMS / program).read_text(), layout, environment=environment)
    job.expect_success(150)
    assert all("all is well" in rank.output for rank in job.ranks), job.transcript()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_all_reduces(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "all_reduces.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 2]], ids=str)
def test_batch_normalization_over_all_ranks(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "sync_batch_norm.py", layout)


@pytest.mark.parametrize("reducer_threads", [0, 2])
def test_large_sums_of_several_ranks_on_each_node(cluster: Cluster, reducer_threads: int) -> None:
    # Without spinning ringd sleeps whenever it has to wait, for a reducer too.
    run(cluster, "large_sums.py", [3, 3], reducer_threads=reducer_threads, spin="0s")
    words = " reducer threads sum "
    for node in cluster.nodes:
        if reducer_threads > 0:
            node.expect_output(words)
        else:
            assert words not in node.output


def test_large_sums_of_one_rank_on_each_node(cluster: Cluster) -> None:
    run(cluster, "large_sums.py", [1, 1, 1], spin="0s")


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_broadcasts(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "broadcasts.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_a_model_larger_than_the_arena_is_broadcast(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "many_parameters.py", layout, arena_bytes="160MiB")


@pytest.mark.parametrize("layout", [[2], [2, 2]], ids=str)
def test_ranks_that_disagree_are_told_and_go_on(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "mismatches.py", layout)


@pytest.mark.parametrize("layout", [[3], [2, 1]], ids=str)
def test_threads_submit_at_once(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "threads.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_a_process_joins_again(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "again.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 2]], ids=str)
def test_distributed_training_equals_training_alone(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "optimizers.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 2]], ids=str)
def test_large_gradients_in_all_ways_of_training(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "large_gradients.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 2]], ids=str)
def test_traps_of_an_optimizer_are_right_or_named(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "optimizer_traps.py", layout)


@pytest.mark.parametrize("layout", [[2], [1, 2]], ids=str)
def test_states_that_are_loaded_into_an_optimizer(cluster: Cluster, layout: list[int]) -> None:
    run(cluster, "optimizer_states.py", layout)
