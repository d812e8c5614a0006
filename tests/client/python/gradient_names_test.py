"""Gradients' names: two optimizers never share one, and all ranks find the same. Against the
account of process_set_account.py, which speaks for three other ranks."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import ringd
import ringd.torch as hvd
import torch
from torch import nn

from tests.client.python.process_set_account import Account, start


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return start(monkeypatch)


def layer() -> nn.Linear:
    return nn.Linear(2, 1, bias=False)


def distributed(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), **options)


def named(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return distributed(model, named_parameters=model.named_parameters(), **options)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def submitted(account: Account) -> list[str]:
    names = [spec.name for spec in account.submitted]
    account.submitted.clear()
    return names


def test_a_second_optimizer_numbers_names_that_the_first_has(account: Account) -> None:
    first, second, third = layer(), layer(), layer()
    optimizers = [named(first), named(second), distributed(third)]
    for model, optimizer in zip((first, second, third), optimizers, strict=True):
        step(model, optimizer)
    assert submitted(account) == [
        "gradient.weight",
        "gradient.optimizer_2.weight",
        "gradient.parameter.0",
    ]


def test_numbers_do_not_depend_on_what_has_gone(account: Account) -> None:
    for _ in range(2):
        distributed(layer())
        gc.collect()
    model = layer()
    step(model, distributed(model))
    assert submitted(account) == ["gradient.optimizer_3.parameter.0"]


def test_a_name_like_a_number_is_no_other_optimizers(account: Account) -> None:
    nested = nn.ModuleDict({"optimizer_2": layer()})
    named(nested)
    first, second = layer(), layer()
    named(first)
    step(second, named(second))
    assert submitted(account) == ["gradient.optimizer_3.weight"]


def test_halves_of_a_model_keep_its_names(account: Account) -> None:
    model = nn.Sequential(layer(), nn.Linear(1, 1, bias=False))
    for part in model:
        hvd.DistributedOptimizer(torch.optim.SGD(part.parameters(), lr=1.0), model.named_parameters()).step()
    assert submitted(account) == ["gradient.0.weight", "gradient.1.weight"]


def test_a_model_wrapped_again_keeps_its_names(account: Account) -> None:
    model = layer()
    for _ in range(2):
        step(model, named(model))
    assert submitted(account) == ["gradient.weight"] * 2


def test_groups_that_are_added_have_names_of_their_own(account: Account) -> None:
    models = layer(), layer()
    optimizers = [distributed(model) for model in models]
    for optimizer in optimizers:
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        optimizer.step()
    assert submitted(account) == [
        "gradient.parameter.0",
        "gradient.group.1.0",
        "gradient.optimizer_2.parameter.0",
        "gradient.optimizer_2.group.1.0",
    ]


def test_losses_of_closures_are_told_apart(account: Account) -> None:
    model = nn.Sequential(layer(), nn.Linear(1, 1, bias=False))
    for part in model:
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(part.parameters(), lr=1.0), model.named_parameters()
        )
        optimizer.step(lambda: 1.0)
    losses = [name for name in submitted(account) if "loss" in name]
    assert losses == ["allreduce.loss.0.weight", "allreduce.loss.1.weight"]


def test_the_count_begins_anew_with_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch)
    first, second = layer(), layer()
    optimizer_of_first, optimizer_of_second = named(first), named(second)
    hvd.shutdown()
    account = start(monkeypatch)
    # A process that has started since makes them in this order; this one still has them.
    step(second, optimizer_of_second)
    step(first, optimizer_of_first)
    third = layer()
    step(third, named(third))
    assert submitted(account) == [
        "gradient.optimizer_2.weight",
        "gradient.weight",
        "gradient.optimizer_3.weight",
    ]
    hvd.shutdown()
    account = start(monkeypatch)
    step(third, named(third))
    assert submitted(account) == ["gradient.weight"]
    with pytest.raises(ringd.FailedPreconditionError, match="Make it again"):
        step(first, optimizer_of_first)
    hvd.shutdown()


def test_process_sets_count_for_themselves(account: Account) -> None:
    models = layer(), layer()
    for model, ranks in zip(models, ([0, 1], [0, 2]), strict=True):
        step(model, named(model, process_set=hvd.add_process_set(ranks)))
    assert submitted(account) == ["gradient.weight"] * 2


def test_what_gradients_of_gone_models_were_described_by_is_given_back(account: Account) -> None:
    for _ in range(5):
        model = layer()
        step(model, named(model))
        del model
        gc.collect()
    assert len(account.live) <= 2
