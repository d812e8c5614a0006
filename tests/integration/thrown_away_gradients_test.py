"""Gradients that some ranks throw away: DistributedOptimizer on real ringds."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster

# Rank 0 makes a backward pass for itself alone.
ALONE = """
    import warnings

    import ringd.torch as hvd
    import torch

    warnings.simplefilter("ignore")
    hvd.init()
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    if hvd.rank() == 0:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.zero_grad()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
"""

# All drop a batch in which each uses another part of the model.
DROPPED = """
    import os
    import warnings

    import ringd
    import ringd.torch as hvd
    import torch

    warnings.simplefilter("ignore")
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(3, 2), torch.nn.Linear(3, 3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(5):
        model[hvd.rank()](model[2](torch.ones(1, 3))).sum().backward()
        try:
            (optimizer if os.environ["BY"] == "optimizer" else model).zero_grad()
            model[1 - hvd.rank()](model[2](torch.ones(1, 3))).sum().backward()
            optimizer.step()
        except ringd.FailedPreconditionError as error:
            print("told:", error, flush=True)
            break
        optimizer.zero_grad()
    else:
        for parameter in model.parameters():
            assert torch.equal(parameter, hvd.broadcast(parameter.detach(), 0))
        print("equal", flush=True)
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_a_rank_that_alone_throws_gradients_away_waits_and_is_told_for_what(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.start_nodes(len(layout), stall_warning="1s", operation_timeout="4s")
    job = cluster.start_job(ALONE, layout)
    # Rank 1 waits for rank 0's next gradients in vain, too.
    job.ranks[0].expect_output("has not submitted 'allreduce.zero_grad() of gradients that are being")
    assert job.wait() == [1, 1], job.transcript()
    assert "did not complete within the operation timeout" in job.transcript()


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_a_dropped_batch_may_have_used_other_parameters_on_each_rank(
    cluster: Cluster, layout: list[int]
) -> None:
    cluster.start_nodes(len(layout))
    job = cluster.start_job(DROPPED, layout, environment={"BY": "optimizer"})
    job.expect_success()
    assert job.transcript().count("equal") == 2


def test_dropped_by_the_model_that_is_an_error(cluster: Cluster) -> None:
    cluster.start_nodes(1, operation_timeout="20s")
    job = cluster.start_job(DROPPED, [2], environment={"BY": "model"})
    job.wait()
    assert job.transcript().count("told: zero_grad() has thrown away reduced gradients here") == 2
