"""Steps with gradients that were not reduced, and optimizers that step in ways of their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import ringd
import torch
from torch import nn

from tests.client.python.reduced import distributed, expect_same, gradient_of, loss_of, make, sgd

pytestmark = pytest.mark.usefixtures("doubling")


def test_a_fused_step_that_grad_scaler_prepared_with_unreduced_gradients_is_refused() -> None:
    model = make()
    optimizer = distributed(torch.optim.Adam(model.parameters(), fused=True), model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(loss_of(model)).backward()
    with pytest.raises(ringd.FailedPreconditionError, match="infinities.*optimizer.synchronize"):
        scaler.step(optimizer)
    for parameter, unchanged in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, unchanged)
    # What the scaler has left there is no later step's.
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert not torch.equal(next(model.parameters()), before[0])


class Plain(torch.optim.Optimizer):
    """With an attribute of its own that GradScaler sets on fused ones."""

    found_inf = torch.zeros(1)

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(0.1 * parameter.grad)


def test_an_optimizer_may_have_an_attribute_that_grad_scaler_would_set() -> None:
    model, reference = make(), make()
    optimizer = distributed(Plain(model.parameters()), model)
    loss_of(model).backward()
    optimizer.step()
    (2 * loss_of(reference)).backward()
    sgd(reference).step()
    expect_same(model, reference)


def test_a_fused_step_that_grad_scaler_prepared_with_reduced_gradients() -> None:
    model, reference = make(), make()
    optimizer = distributed(torch.optim.SGD(model.parameters(), lr=0.1, fused=True), model)
    expected = torch.optim.SGD(reference.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        expected.zero_grad()
        (2 * loss_of(reference, step)).backward()
        expected.step()
        expect_same(model, reference)


class TakesScaler(torch.optim.SGD):
    """By PyTorch's older way: the scaler is handed to the step."""

    _step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: Any = None, *, grad_scaler: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad /= grad_scaler.get_scale()
        return super().step(closure)


@pytest.mark.filterwarnings("ignore:.*grad_scaler.*:FutureWarning")
def test_grad_scaler_hands_itself_to_a_step_that_takes_it() -> None:
    model, reference = make(), make()
    optimizer = distributed(TakesScaler(model.parameters(), lr=0.1), model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(loss_of(model)).backward()
    with pytest.raises(ringd.FailedPreconditionError, match="infinities.*optimizer.synchronize"):
        scaler.step(optimizer)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    (2 * loss_of(reference)).backward()
    sgd(reference).step()
    expect_same(model, reference)


def test_a_step_that_skips_the_synchronization_amid_passes_is_refused() -> None:
    model = make()
    optimizer = distributed(sgd(model), model, backward_passes_per_step=3)
    for passes in (1, 2):
        for _ in range(passes):
            loss_of(model).backward()
        with (
            pytest.raises(ringd.FailedPreconditionError, match=r"'0.weight' \(and 3 more\).* 3 passes"),
            optimizer.skip_synchronize(),
        ):
            optimizer.step()
        optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()


def test_the_number_of_passes_may_change_between_steps() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    for passes in (3, 1, 2):
        optimizer.set_backward_passes_per_step(passes)
        reference = make()
        reference.load_state_dict(model.state_dict())
        expected = sgd(reference)
        for _ in range(passes):
            loss_of(model, passes).backward()
            (2 * loss_of(reference, passes)).backward()  # the sum of two ranks'
        optimizer.step()
        expected.step()
        expect_same(model, reference)
        optimizer.zero_grad()
    loss_of(model).backward()
    with pytest.raises(ringd.FailedPreconditionError, match="between step"):
        optimizer.set_backward_passes_per_step(3)
    with pytest.raises(ValueError, match="at least 1"):
        optimizer.set_backward_passes_per_step(0)


class Twice(torch.optim.Optimizer):
    """Steps up to where the loss is larger, and from the gradient there (sharpness-aware), as the
    implementation that is best known."""

    param_groups: list[dict[str, Any]]

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"rho": 0.1})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.1)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, *, zero_grad: bool = False) -> None:
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["old"] = parameter.clone()
            parameter.add_(0.1 * parameter.grad)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, *, zero_grad: bool = False) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.copy_(self.state[parameter]["old"])
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.first_step(zero_grad=True)
        with torch.enable_grad():
            closure()
        self.second_step()


@pytest.mark.parametrize("with_closure", [True, False])
@pytest.mark.filterwarnings("error")
def test_an_optimizer_that_steps_twice(*, with_closure: bool) -> None:
    def trained(wrap: Callable[[Any, nn.Module], Any], scale: float) -> nn.Module:
        model = make()
        optimizer = wrap(Twice(model.parameters()), model)
        for step in range(3):

            def closure(step: int = step) -> torch.Tensor:
                loss = scale * loss_of(model, step)
                loss.backward()
                return loss

            closure()
            if with_closure:
                optimizer.step(closure)
            else:
                optimizer.first_step(zero_grad=True)
                closure()
                optimizer.second_step(zero_grad=True)
            optimizer.zero_grad()
        return model

    expect_same(
        trained(lambda optimizer, model: distributed(optimizer, model), 1.0), trained(lambda o, _: o, 2.0)
    )


@pytest.mark.filterwarnings("error")
def test_the_last_of_several_passes_may_come_in_the_closure() -> None:
    model, reference = make(), make()
    optimizer = distributed(sgd(model), model, backward_passes_per_step=4)
    expected = sgd(reference)
    for _ in range(2):
        optimizer.zero_grad()
        for step in range(3):
            loss_of(model, step).backward()

        def last() -> torch.Tensor:
            loss = loss_of(model, 3)
            loss.backward()
            return loss

        optimizer.step(last)
        expected.zero_grad()
        for step in range(4):
            (2 * loss_of(reference, step)).backward()
        expected.step()
        expect_same(model, reference)


class Around(torch.optim.Optimizer):
    """Steps through another optimizer that it has (as Lookahead)."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


@pytest.mark.filterwarnings("error")
def test_an_optimizer_around_a_distributed_one_steps_through_it() -> None:
    model, reference = make(), make()
    optimizer = Around(distributed(sgd(model), model))
    expected = sgd(reference)
    for step in range(3):
        optimizer.inner.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        expected.zero_grad()
        (2 * loss_of(reference, step)).backward()
        expected.step()
        expect_same(model, reference)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_step_of_another_optimizer_with_unreduced_gradients_is_refused(passes: int) -> None:
    model, other_model = make(), make()
    inner, other = torch.optim.Adam(model.parameters()), sgd(other_model)
    optimizer = distributed(sgd(model), model, backward_passes_per_step=passes)
    loss_of(model).backward()
    with pytest.raises(ringd.FailedPreconditionError, match=r"\(Adam\).*\(and 3 more\).*hvd.Distributed"):
        inner.step()
    other.step()  # has parameters of its own
    optimizer.step()
    inner.step()  # of reduced ones


def test_a_change_of_the_gradients_type_while_they_are_reduced_is_told() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        for parameter in model.parameters():
            parameter.data = parameter.data.double()
            gradient = gradient_of(parameter)
            gradient.data = gradient.data.double()
        with pytest.raises(ringd.FailedPreconditionError, match="was changed after"):
            optimizer.step()
        for parameter in model.parameters():
            parameter.data = parameter.data.float()
        optimizer.zero_grad()


def test_the_last_of_several_passes_may_come_in_a_closure_that_synchronizes() -> None:
    model, reference = make(), make()
    optimizer = distributed(sgd(model), model, backward_passes_per_step=2)
    loss_of(model, 0).backward()

    def last() -> torch.Tensor:
        loss = loss_of(model, 1)
        loss.backward()
        optimizer.synchronize()
        return loss

    with optimizer.skip_synchronize():
        optimizer.step(last)
    for step in range(2):
        (2 * loss_of(reference, step)).backward()
    sgd(reference).step()
    expect_same(model, reference)


class Marked(torch.optim.SGD):
    first_step = True


def test_a_class_may_have_an_attribute_that_is_called_as_a_part_of_a_step() -> None:
    model = make()
    optimizer = distributed(Marked(model.parameters(), lr=0.1), model)
    assert optimizer.first_step is True
    loss_of(model).backward()
    optimizer.step()


def test_after_a_gradient_with_a_graph_gradients_are_in_the_arena_again() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)

    def step(*, create_graph: bool = False) -> None:
        optimizer.zero_grad()
        loss_of(model).backward(create_graph=create_graph)
        optimizer.step()

    def places() -> set[bool]:
        slots = optimizer._reduction._slots.items()
        return {gradient_of(parameter) is slot.arena for parameter, slot in slots}

    step()
    step()
    assert places() == {True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of the graph
        step(create_graph=True)
    assert places() == {False}
    step()
    assert places() == {True}
