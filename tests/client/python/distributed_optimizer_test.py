"""Steps with gradients that were not reduced, and parameters that take the place of others."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import ringd
import torch
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Job
from torch import nn

from tests.client.python.reduced import distributed, gradient_of

pytestmark = pytest.mark.usefixtures("doubling")


def make() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loss_of(model: nn.Module, step: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return model(torch.randn(5, 3, generator=generator)).square().mean()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def expect_same(model: nn.Module, reference: nn.Module) -> None:
    for (name, mine), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=lambda text, name=name: f"{name}: {text}")


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


@pytest.mark.parametrize("with_zero_grad", [True, False])
def test_a_parameter_that_takes_another_s_place_is_reduced(*, with_zero_grad: bool) -> None:
    model, reference = make(), make()
    optimizer, expected = distributed(sgd(model), model), sgd(reference)
    for step in range(4):
        if step == 2:
            for net, of in ((model, optimizer), (reference, expected)):
                layer = net.get_submodule("2")
                new = nn.Parameter(torch.full((6, 4), 0.5)[:2].clone())
                layer.register_parameter("weight", new)
                of.param_groups[0]["params"][2] = new
        for of in (optimizer, expected):
            if with_zero_grad:
                of.zero_grad()
        if not with_zero_grad:
            model.zero_grad()
            reference.zero_grad()
        loss_of(model, step).backward()
        (2 * loss_of(reference, step)).backward()
        optimizer.step()
        expected.step()
        expect_same(model, reference)


def test_a_parameter_that_was_replaced_is_let_go() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    loss_of(model).backward()  # in flight when another takes its place
    old = optimizer.param_groups[0]["params"][0]
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.ones(4, 3))
    optimizer.step()
    old.grad = None
    old.sum().backward()
    optimizer.synchronize()
    assert gradient_of(old).unique().tolist() == [1.0]


def test_parameters_that_were_replaced_leave_no_registrations(job: Job) -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    counts = []
    for _ in range(8):
        optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.ones(4, 3))
        optimizer.zero_grad()
        sum(parameter.sum() for parameter in optimizer.param_groups[0]["params"]).backward()
        optimizer.step()
        gc.collect()
        counts.append(len(job._registrations))
    # One that has just gone is given back the next time.
    assert max(counts) <= 6


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


def test_a_model_whose_hooks_refer_to_its_optimizer_is_collected() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    gone = weakref.ref(model)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient, kept=optimizer: gradient * len(kept.param_groups))
    loss_of(model).backward()
    optimizer.step()
    del model, optimizer, parameter
    gc.collect()
    assert gone() is None


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


@pytest.fixture
def failing_discard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first operation that is given up fails, as one about which the ranks disagree."""
    discard = GradientSlot.discard
    failed: list[GradientSlot] = []

    def failing(slot: GradientSlot) -> None:
        discard(slot)
        if not failed:
            failed.append(slot)
            raise ringd.InvalidArgumentError("ranks differ")

    monkeypatch.setattr(GradientSlot, "discard", failing)


@pytest.mark.usefixtures("failing_discard")
def test_a_parameter_whose_old_operation_failed_is_taken_over_the_next_time() -> None:
    model, other = make(), make()
    first = distributed(sgd(model), model)
    second = distributed(sgd(other), other)
    loss_of(model).backward()
    taken = first.param_groups[0]["params"][0]
    with pytest.raises(ringd.InvalidArgumentError, match="ranks differ"):
        second.add_param_group({"params": [taken]})
    second.zero_grad()
    taken.sum().backward()
    second.synchronize()
    assert gradient_of(taken).unique().tolist() == [2.0]
    del first


@pytest.mark.usefixtures("failing_discard")
def test_all_replaced_parameters_are_let_go_although_an_operation_failed() -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    loss_of(model).backward()
    parameters = optimizer.param_groups[0]["params"]
    old = parameters[:2]
    parameters[:2] = [nn.Parameter(torch.ones_like(parameter)) for parameter in old]
    with pytest.raises(ringd.InvalidArgumentError, match="ranks differ"):
        optimizer.zero_grad()
    optimizer.zero_grad()
    assert len(optimizer._reduction._slots) == len(parameters)
    assert not any(parameter in optimizer._reduction._slots for parameter in old)
