"""Parameters that take the place of others, and models that go."""

from __future__ import annotations

import gc
import weakref

import pytest
import ringd
import torch
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Job
from torch import nn

from tests.client.python.reduced import distributed, expect_same, gradient_of, loss_of, make, sgd

pytestmark = pytest.mark.usefixtures("doubling")


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


@pytest.mark.parametrize("through", ["hooks", "attributes"])
def test_parameters_that_refer_to_their_optimizer_are_collected(through: str) -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    gone = [weakref.ref(parameter) for parameter in model.parameters()]
    for parameter in model.parameters():
        if through == "hooks":
            parameter.register_hook(lambda gradient, kept=optimizer: gradient * len(kept.param_groups))
        else:
            parameter.optimizer = optimizer
    loss_of(model).backward()
    optimizer.step()
    del model, optimizer, parameter
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4


def test_what_an_optimizer_left_in_flight_is_let_go_when_the_next_one_comes(job: Job) -> None:
    for _ in range(3):
        model = make()
        optimizer = distributed(sgd(model), model)
        loss_of(model).backward()
        gone = weakref.ref(model)
        del model, optimizer
        gc.collect()
        assert job.in_flight
        model = make()
        distributed(sgd(model), model)
        gc.collect()
        assert not job.in_flight
        assert gone() is None


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_amid_the_results_loses_none(monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
    model, reference = make(), make()
    optimizer, expected = distributed(sgd(model), model), sgd(reference)
    loss_of(model).backward()
    (2 * loss_of(reference)).backward()
    take = GradientSlot.finish
    seen: list[GradientSlot] = []

    def interrupted(slot: GradientSlot) -> None:
        seen.append(slot)
        if before and len(seen) == 2:
            raise KeyboardInterrupt
        take(slot)
        if not before and len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(GradientSlot, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        optimizer.synchronize()
    optimizer.synchronize()
    expected.step()
    with optimizer.skip_synchronize():
        optimizer.step()
    expect_same(model, reference)


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
