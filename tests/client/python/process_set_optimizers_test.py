"""Optimizers whose gradients are reduced in a process set."""

from __future__ import annotations

import gc

import pytest
import ringd
import ringd.torch as hvd
import torch
from ringd.torch import job as jobs

from tests.client.python.process_set_account import Account, start


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return start(monkeypatch)


def parameter(value: float) -> torch.Tensor:
    return torch.full((2,), value, requires_grad=True)


def test_optimizers_of_two_sets_reduce_in_their_own(account: Account) -> None:
    first, second = hvd.add_process_set([0, 2]), hvd.add_process_set([0, 1])
    one, other = parameter(1.0), parameter(1.0)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD([p], lr=0.1), [("weight", p)], process_set=s)
        for p, s in ((one, first), (other, second))
    ]
    (one.sum() + other.sum()).backward()
    for optimizer in optimizers:
        optimizer.step()
    assert sorted((spec.communicator, spec.name) for spec in account.submitted) == [
        (101, "gradient.weight"),
        (102, "gradient.weight"),
    ]


def test_an_optimizer_of_a_set_without_this_rank_steps_alone(account: Account) -> None:
    others = hvd.add_process_set([1, 2])
    weight = parameter(1.0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.5), process_set=others)
    for _ in range(2):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    assert weight.tolist() == [0.0, 0.0]
    assert not account.submitted


def test_an_optimizer_whose_set_is_not_registered_takes_nothing(account: Account) -> None:
    weight = parameter(1.0)
    first = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
    with pytest.raises(ringd.FailedPreconditionError, match="not registered"):
        hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), process_set=hvd.ProcessSet([0, 1]))
    weight.sum().backward()
    first.step()
    assert len(account.submitted) == 1


def test_an_optimizer_notices_that_its_set_was_removed_or_added_again(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    weight = parameter(1.0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), process_set=pair)
    weight.sum().backward()
    with pytest.raises(ringd.FailedPreconditionError, match="have not been synchronized"):
        hvd.remove_process_set(pair)
    optimizer.step()
    hvd.remove_process_set(pair)
    with pytest.raises(ringd.FailedPreconditionError, match="not registered"):
        optimizer.step()
    hvd.add_process_set(pair)
    optimizer.step()
    assert [spec.communicator for spec in account.submitted] == [101, 102]


def test_what_a_dropped_optimizer_left_in_flight_keeps_no_set_from_being_removed(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    weight = parameter(1.0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), process_set=pair)
    weight.sum().backward()
    del optimizer
    gc.collect()
    assert jobs.current().left
    assert hvd.remove_process_set(pair)
    assert not jobs.current().in_flight
