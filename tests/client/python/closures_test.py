"""Closures of distributed optimizers, and classes of optimizers with ways of their own."""

from __future__ import annotations

from typing import Any

import pytest
import ringd
import torch

from tests.client.python.reduced import distributed, expect_same, loss_of, make, sgd

pytestmark = [pytest.mark.usefixtures("doubling"), pytest.mark.filterwarnings("error")]


def test_a_closure_may_synchronize_and_change_its_gradients() -> None:
    model, reference = make(), make()
    optimizer = distributed(sgd(model), model)

    def clipped() -> torch.Tensor:
        optimizer.zero_grad()
        loss = 100 * loss_of(model)
        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    for _ in range(3):
        optimizer.step(clipped)
        reference.zero_grad()
        (200 * loss_of(reference)).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        sgd(reference).step()
        expect_same(model, reference)


class Searches(torch.optim.SGD):
    """Evaluates the loss alone after its step, with an argument for the closure."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            closure(backward=True)
        super().step()
        return closure(backward=False)


def test_a_closure_is_called_as_the_optimizer_calls_it() -> None:
    model, reference = make(), make()
    optimizer = distributed(Searches(model.parameters(), lr=0.1), model)
    passes = 0

    def closure(*, backward: bool) -> torch.Tensor:
        nonlocal passes
        assert torch.is_grad_enabled() == backward
        if backward:
            optimizer.zero_grad()
        loss = loss_of(model)
        if loss.requires_grad:
            passes += 1
            loss.backward()
        return loss

    for step in range(3):
        optimizer.step(closure)
        reference.zero_grad()
        (2 * loss_of(reference)).backward()
        sgd(reference).step()
        expect_same(model, reference)
        for parameter, expected in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, expected.grad)
        assert passes == step + 1


class LoadsItself(torch.optim.SGD):
    """As optimizers of 8 bits: PyTorch's hooks are not called."""

    def load_state_dict(self, state_dict: Any) -> None:
        groups = [dict(group) for group in state_dict["param_groups"]]
        for group, old in zip(groups, self.param_groups, strict=True):
            group["params"] = old["params"]
        self.__setstate__({"state": {}, "param_groups": groups})


def test_groups_are_shared_after_a_class_has_loaded_a_state_in_its_own_way() -> None:
    model = make()
    base = LoadsItself(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(base, 1)
    optimizer = distributed(base, model)
    optimizer.load_state_dict(optimizer.state_dict())
    loss_of(model).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


class Around(torch.optim.Optimizer):
    """As timm's Lookahead: its groups are those of another one, also after a state was loaded."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        super().__init__(base.param_groups, dict(base.defaults))
        self.base = base
        self.param_groups = base.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.base.step(closure)

    def load_state_dict(self, state_dict: Any) -> None:
        self.base.load_state_dict(state_dict)
        self.param_groups = self.base.param_groups


def test_groups_stay_those_of_an_optimizer_within_after_a_state_was_loaded() -> None:
    model = make()
    around = Around(sgd(model))
    scheduler = torch.optim.lr_scheduler.StepLR(around, 1)
    optimizer = distributed(around, model)
    optimizer.load_state_dict(around.base.state_dict())
    loss_of(model).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == around.base.param_groups[0]["lr"] == pytest.approx(0.01)


class Bare(torch.optim.Optimizer):
    """Takes the place of another one without being made as one, as published Lookaheads do."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups
        self.defaults = inner.defaults
        self.state = inner.state

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


def test_an_optimizer_that_was_not_made_as_one_is_distributed_all_the_same() -> None:
    model, reference = make(), make()
    optimizer = distributed(Bare(sgd(model)), model)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        reference.zero_grad()
        (2 * loss_of(reference, step)).backward()
        sgd(reference).step()
        expect_same(model, reference)


def test_a_closure_that_leaves_gradients_unreduced_is_refused_where_synchronizing_is_skipped() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    with (
        optimizer.skip_synchronize(),
        pytest.raises(ringd.FailedPreconditionError, match="optimizer.synchronize"),
    ):
        optimizer.step(closure)
    for parameter, unchanged in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, unchanged)
    optimizer.synchronize()


class WithArguments(torch.optim.SGD):
    """Steps with a rate that it is given each time, as Sophia does with a batch size."""

    @torch.no_grad()
    def step(self, closure: Any = None, rate: float = 0.0, *, times: int = 1) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-rate * times)
        return loss


class WithRate(torch.optim.SGD):
    """What it is given first is no closure."""

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-rate)


def test_what_is_no_closure_is_handed_on_as_it_is() -> None:
    model, reference = make(), make()
    optimizer = distributed(WithRate(model.parameters(), lr=0.1), model)
    loss_of(model).backward()
    optimizer.step(0.1)
    (2 * loss_of(reference)).backward()
    sgd(reference).step()
    expect_same(model, reference)


@pytest.mark.parametrize("with_closure", [False, True])
def test_what_a_step_is_given_reaches_the_optimizer_s_own(with_closure: bool) -> None:
    model, reference = make(), make()
    optimizer = distributed(WithArguments(model.parameters(), lr=0.1), model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    if with_closure:
        optimizer.step(closure, 0.05, times=2)
    else:
        closure()
        optimizer.step(rate=0.05, times=2)
    (2 * loss_of(reference)).backward()
    sgd(reference).step()
    expect_same(model, reference)


def test_a_gradient_set_on_what_was_frozen_is_told_once() -> None:
    model = make().requires_grad_(False)
    optimizer = distributed(sgd(model), model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.warns(UserWarning, match="'0.weight'.*each rank steps with its own"):
        optimizer.step()
    optimizer.step()  # filterwarnings: error
