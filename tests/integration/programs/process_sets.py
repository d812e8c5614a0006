"""Rank program: process sets that overlap, side by side with all ranks, in every function that
takes one. For four ranks."""

from __future__ import annotations

import itertools
from typing import Any

import ringd
import ringd.torch as hvd
import torch
from torch import nn

STEPS = 6
EXTENTS = (1, 700, 90_000)

torch.set_num_threads(1)
EVENS, MOST, ONE = hvd.ProcessSet([2, 0]), hvd.ProcessSet([3, 1, 2]), hvd.ProcessSet([1])
hvd.init(process_sets=[EVENS, MOST, ONE])
RANK = hvd.rank()
ODDS = hvd.add_process_set([1, 3])
ALL = [EVENS, MOST, ONE, ODDS, hvd.global_process_set]
MINE = [process_set for process_set in ALL if process_set.included()]


def value(rank: int, step: int, extent: int) -> torch.Tensor:
    return (torch.arange(extent) % 251 + 17 * rank + step).float()


def expect(process_set: hvd.ProcessSet, result: torch.Tensor, step: int, what: str) -> None:
    expected = sum(value(rank, step, result.numel()) for rank in process_set.ranks)
    assert torch.equal(result, expected), (what, process_set, result[:3], expected[:3])


def places() -> None:
    assert [process_set.process_set_id for process_set in ALL] == [1, 2, 3, 4, 0]
    for process_set in MINE:
        assert process_set.ranks[process_set.rank()] == RANK
        hvd.barrier(process_set)
        hvd.barrier(process_set, name="again")


def side_by_side() -> None:
    """All in flight at once, begun in another order on every rank."""
    order = list(itertools.permutations(range(len(MINE))))
    for step in range(STEPS):
        started = []
        for index in order[(step + RANK) % len(order)]:
            for extent in EXTENTS:
                mine = value(RANK, step, extent)
                name = f"x{extent}"
                handle = hvd.allreduce_async(mine, op=hvd.Sum, name=name, process_set=MINE[index])
                started.append((MINE[index], handle))
        for process_set, handle in started:
            expect(process_set, hvd.synchronize(handle), step, "side by side")


def without_names() -> None:
    """A rank of many sets counts more operations than one of few."""
    for step in range(STEPS):
        for process_set in MINE:
            expect(
                process_set,
                hvd.allreduce(value(RANK, step, 8), op=hvd.Sum, process_set=process_set),
                step,
                "at once",
            )
            tensors = [value(RANK, step, extent) for extent in EXTENTS]
            for result in hvd.grouped_allreduce_(tensors, op=hvd.Sum, process_set=process_set):
                expect(process_set, result, step, "a group")


def operators() -> None:
    for process_set in MINE:
        ranks = process_set.ranks
        own = torch.full((5,), RANK + 1.0)
        for op, expected in (
            (hvd.Average, sum(rank + 1 for rank in ranks) / len(ranks)),
            (hvd.Min, min(ranks) + 1),
            (hvd.Max, max(ranks) + 1),
        ):
            result = hvd.allreduce(own, op=op, process_set=process_set)
            torch.testing.assert_close(result, torch.full((5,), float(expected)))
        tensor = torch.full((5,), RANK + 1.0, requires_grad=True)
        hvd.allreduce(tensor, process_set=process_set).mul(RANK + 1).sum().backward()
        assert tensor.grad is not None
        torch.testing.assert_close(
            tensor.grad, torch.full((5,), sum(rank + 1.0 for rank in ranks) / len(ranks))
        )


def broadcasts() -> None:
    for process_set in MINE:
        root = process_set.ranks[-1]
        options: dict[str, Any] = {"process_set": process_set}
        for extent in EXTENTS:
            given = value(RANK, 0, extent)
            assert torch.equal(hvd.broadcast(given, root, **options), value(root, 0, extent))
            assert hvd.broadcast_(given, root, **options) is given
            assert torch.equal(given, value(root, 0, extent))
        said = hvd.broadcast_object({"from": RANK}, root, **options)
        assert said == {"from": root}, (process_set, said)
        torch.manual_seed(RANK)
        model = nn.Linear(3, 2)
        hvd.broadcast_parameters(model.state_dict(), root, **options)
        torch.manual_seed(root)
        assert torch.equal(model.weight, nn.Linear(3, 2).weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (RANK + 1), momentum=0.9)
        hvd.broadcast_optimizer_state(optimizer, root, **options)
        assert optimizer.param_groups[0]["lr"] == 0.1 * (root + 1)


def model_and_batch(rank: int, step: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return model, torch.randn(6, 4, generator=generator, dtype=torch.float64)


def two_optimizers() -> None:
    """Models with equal names, two of them on all ranks but one, each reduced among a set of its
    own. Each is what one process makes of the batches of that set's ranks."""
    sets = [process_set for process_set in (EVENS, MOST, ODDS) if process_set.included()]
    models = [model_and_batch(RANK, 0)[0] for _ in sets]
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            model.named_parameters(),
            process_set=process_set,
        )
        for process_set, model in zip(sets, models, strict=True)
    ]
    for step in range(STEPS):
        _, batch = model_and_batch(RANK, step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        # In one backward pass, so that gradients of both are in flight together.
        sum(model(batch).square().mean() for model in models).backward()
        for optimizer in optimizers:
            optimizer.step()
    for process_set, model in zip(sets, models, strict=True):
        alone, _ = model_and_batch(RANK, 0)
        reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
        for step in range(STEPS):
            reference.zero_grad()
            batch = torch.cat([model_and_batch(rank, step)[1] for rank in process_set.ranks])
            alone(batch).square().mean().backward()
            reference.step()
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, msg=lambda text, s=process_set: f"{s}: {text}")


def normalization() -> None:
    batches = [value(rank, 0, 12).view(4, 3) for rank in range(hvd.size())]
    for process_set in MINE:
        whole = torch.cat([batches[rank] for rank in process_set.ranks])
        begin = 4 * process_set.rank()
        expected = nn.BatchNorm1d(3)(whole)[begin : begin + 4]
        result = hvd.SyncBatchNorm(3, process_set=process_set)(batches[RANK].clone().requires_grad_())
        torch.testing.assert_close(result, expected)
        result.square().sum().backward()


def expect_error(kind: type[Exception], words: str, call: Any) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no error with '{words}'")


def errors() -> None:
    one = torch.ones(3)
    for process_set in ALL:
        if not process_set.included():
            expect_error(
                ringd.InvalidArgumentError,
                f"rank {RANK} is not in the process set",
                lambda s=process_set: hvd.allreduce(one, process_set=s),
            )
    if EVENS.included():
        expect_error(
            ringd.InvalidArgumentError,
            "root_rank is 1, which is no rank of communicator 'process_set.1'",
            lambda: hvd.broadcast(one, 1, process_set=EVENS),
        )
    if ODDS.included():
        # Ranks of a set that disagree; the set goes on.
        expect_error(
            ringd.InvalidArgumentError,
            "allreduce.unlike",
            lambda: hvd.allreduce(torch.ones(RANK), name="unlike", process_set=ODDS),
        )
    expect_error(
        ringd.InvalidArgumentError,
        "ask" if RANK != 3 else "ranks 0, 1, 2 ask for something else",
        lambda: hvd.add_process_set([0, 1] if RANK != 3 else [2, 3]),
    )
    handle = hvd.allreduce_async(one, process_set=MOST) if RANK == 2 else None
    expect_error(
        ringd.FailedPreconditionError,
        "process set 2 (ranks 1, 2, 3) can't be removed: on rank 2 operations",
        lambda: hvd.remove_process_set(MOST),
    )
    if MOST.included():
        hvd.synchronize(handle or hvd.allreduce_async(one, process_set=MOST))


def removal() -> None:
    for process_set in (EVENS, MOST, ONE, ODDS):
        assert hvd.remove_process_set(process_set)
        expect_error(
            ringd.FailedPreconditionError,
            "not registered",
            lambda s=process_set: hvd.barrier(s),
        )
    for process_set in (ODDS, ONE, MOST, EVENS):
        hvd.add_process_set(process_set)
    assert [process_set.process_set_id for process_set in ALL] == [8, 7, 6, 5, 0]
    side_by_side()
    # More sets than a rank keeps descriptions of a name.
    for _ in range(20):
        passing = hvd.add_process_set([0, 3])
        if passing.included():
            expect(passing, hvd.allreduce(value(RANK, 0, 4), op=hvd.Sum, process_set=passing), 0, "passing")
        hvd.remove_process_set(passing)


def hooks_of_a_removed_set() -> None:
    """Gradients are submitted by hooks that know the set's communicator."""
    model = nn.Linear(300, 60)  # one gradient that is copied into the arena, one that is not
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters("hooked"), process_set=EVENS
    )

    def step() -> None:
        optimizer.zero_grad()
        model(value(RANK, 0, 300)).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    if EVENS.included():
        model(value(RANK, 0, 300)).sum().backward()
        busy = "can't be removed: on ranks 0, 2 operations"
    else:
        busy = "operations of it have not been synchronized"
    expect_error(ringd.FailedPreconditionError, busy, lambda: hvd.remove_process_set(EVENS))
    if EVENS.included():
        optimizer.synchronize()
    optimizer.zero_grad()
    assert hvd.remove_process_set(EVENS)
    for _ in range(2):
        expect_error(ringd.FailedPreconditionError, "not registered", step)
    for parameter in model.parameters():
        parameter.grad = None
    hvd.add_process_set(EVENS)
    for _ in range(3):
        step()
    if EVENS.included():
        for parameter in model.parameters():
            root = hvd.broadcast(parameter.detach(), EVENS.ranks[0], process_set=EVENS)
            assert torch.equal(parameter, root)


def again() -> None:
    """In a new job the sets count anew."""
    hvd.shutdown()
    assert EVENS.process_set_id is None
    hvd.init(job_id="again", process_sets=[ODDS, EVENS])
    assert [process_set.process_set_id for process_set in (ODDS, EVENS, MOST)] == [1, 2, None]
    mine = ODDS if ODDS.included() else EVENS
    expect(mine, hvd.allreduce(value(RANK, 0, 8), op=hvd.Sum, process_set=mine), 0, "again")
    hvd.shutdown()


for part in (
    places,
    side_by_side,
    without_names,
    operators,
    broadcasts,
    two_optimizers,
    normalization,
    errors,
    removal,
    hooks_of_a_removed_set,
    again,
):
    part()
print("all is well")
