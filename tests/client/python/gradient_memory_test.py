"""Gradients that do not lie in memory as they are read, or whose place in memory counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ringd.torch as hvd
import torch
from ringd.torch.gradient_reduction import GradientReduction
from torch import nn

from tests.client.python.reduced import distributed, gradient_of

pytestmark = pytest.mark.usefixtures("doubling")


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_conjugated_lazily(*, set_to_none: bool) -> None:
    factors = torch.randn(3, 4, dtype=torch.complex64)

    def trained(wrap: Callable[[Any], Any], scale: float) -> torch.Tensor:
        parameter = nn.Parameter(torch.ones(3, 4, dtype=torch.complex64))
        optimizer = wrap(torch.optim.SGD([parameter], lr=0.1))
        for step in range(4):
            optimizer.zero_grad(set_to_none)
            (scale * (parameter.conj() * (factors * (step + 1))).real.sum()).backward()
            if set_to_none:
                assert gradient_of(parameter).is_conj()
            optimizer.step()
        return parameter.detach()

    expected = trained(lambda optimizer: optimizer, 2.0)
    torch.testing.assert_close(trained(lambda optimizer: hvd.DistributedOptimizer(optimizer), 1.0), expected)


def test_gradients_that_are_conjugated_or_negated_by_the_program() -> None:
    parameter = nn.Parameter(torch.ones(4, dtype=torch.complex64))
    real = nn.Parameter(torch.ones(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter, real], lr=0.0))
    values = torch.tensor([1 + 2j, 3 - 1j, 1j, -2 + 0j], dtype=torch.complex64)
    for _ in range(3):
        parameter.grad = values.clone().conj()
        real.grad = torch._neg_view(torch.full((4,), 3.0))
        optimizer.step()
        assert gradient_of(parameter).tolist() == (2 * values.conj()).tolist()
        assert gradient_of(real).tolist() == [-6.0] * 4


@pytest.mark.parametrize(
    "view",
    [
        torch.Tensor.conj,
        lambda tensor: tensor.conj().imag,
        lambda tensor: torch._neg_view(tensor),
        lambda tensor: tensor.t().conj(),
    ],
)
def test_views_that_are_conjugated_or_negated(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def made() -> torch.Tensor:
        return view(torch.arange(6.0).reshape(2, 3) + 1j * torch.arange(1.0, 7.0).reshape(2, 3))

    expected = made().resolve_conj().resolve_neg()
    assert torch.equal(hvd.allreduce(made(), op=hvd.Sum), expected)
    assert torch.equal(hvd.broadcast(made(), 0), expected)
    assert torch.equal(hvd.grouped_allreduce([made()], op=hvd.Sum)[0], expected)
    for reduce in (
        lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, prescale_factor=3.0),
        lambda tensor: hvd.grouped_allreduce_([tensor], op=hvd.Sum, prescale_factor=3.0)[0],
    ):
        tensor = made()
        assert reduce(tensor) is tensor
        assert torch.equal(tensor, 3 * expected)
    tensor = made()
    assert torch.equal(hvd.broadcast_(tensor, 0), expected)


class Layouts(nn.Module):
    """Parameters that are dense in memory, in orders of their own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.images = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.transposed = nn.Parameter(torch.randn(4, 8).t())
        self.square = nn.Parameter(torch.randn(4, 4).t())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.images(inputs).mean((2, 3)) @ self.transposed @ self.square


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16])
def test_fused_optimizers_with_parameters_of_any_order(
    kind: Any, *, compression: Any, set_to_none: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(2, 3, 6, 6, generator=generator) for _ in range(4)]

    def trained(wrap: Callable[[Any, nn.Module], Any], scale: float) -> nn.Module:
        model = Layouts()
        optimizer = wrap(kind(model.parameters(), lr=0.001, fused=True), model)
        for batch in inputs:
            optimizer.zero_grad(set_to_none)
            (scale * model(batch).square().mean()).backward()
            optimizer.step()
            for parameter in model.parameters():
                assert gradient_of(parameter).stride() == parameter.stride()
        return model

    model = trained(lambda optimizer, net: distributed(optimizer, net, compression=compression), 1.0)
    expected = trained(lambda optimizer, _: optimizer, 2.0)
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        tolerance = 1e-6 if compression is hvd.Compression.none else 1e-3
        torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)


def test_a_rank_without_gradient_keeps_the_order_of_the_parameter() -> None:
    model = Layouts()
    distributed(torch.optim.SGD(model.parameters(), lr=0.1, fused=True), model).step()
    for parameter in model.parameters():
        assert gradient_of(parameter).stride() == parameter.stride()


def plain_view(part: torch.Tensor) -> torch.Tensor:
    return part


def detached(part: torch.Tensor) -> torch.Tensor:
    return part.detach()


# What has a buffer to itself, and is no view, can't be told from a gradient outside of buffers.
@pytest.mark.parametrize(("form", "alone"), [(plain_view, False), (plain_view, True), (detached, False)])
@pytest.mark.parametrize("from_step", [0, 2])
def test_gradients_in_one_buffer_stay_there(
    form: Callable[[torch.Tensor], torch.Tensor], from_step: int, *, alone: bool
) -> None:
    """Also if the buffer comes late, and if it is one gradient's only."""
    model, reference = (nn.Linear(3, 2, bias=not alone) for _ in range(2))
    reference.load_state_dict(model.state_dict())
    parameters = list(model.parameters())
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    optimizer = distributed(torch.optim.SGD(model.parameters(), lr=0.01), model)
    expected = torch.optim.SGD(reference.parameters(), lr=0.01)
    for step in range(5):
        expected.zero_grad()
        inputs = torch.full((2, 3), step + 1.0)
        (2 * reference(inputs).square().mean()).backward()
        expected.step()
        if step < from_step:
            optimizer.zero_grad()
        elif step == from_step:
            sizes = [parameter.numel() for parameter in parameters]
            for parameter, part in zip(parameters, flat.split(sizes), strict=True):
                parameter.grad = form(part.view_as(parameter))
        else:
            flat.zero_()
        model(inputs).square().mean().backward()
        optimizer.step()
        for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs)
        if step >= from_step:
            expected_flat = torch.cat([gradient_of(one).reshape(-1) for one in reference.parameters()])
            torch.testing.assert_close(flat, expected_flat)


class Joined(nn.Module):
    """Whose gradients autograd cuts from one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(2, 3))
        self.second = nn.Parameter(torch.ones(2, 3))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values @ torch.cat([self.first, self.second]).t()


def test_gradients_that_autograd_cuts_from_one_go_into_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    model, reference = Joined(), Joined()
    optimizer = distributed(torch.optim.SGD(model.parameters(), lr=0.1), model)
    expected = torch.optim.SGD(reference.parameters(), lr=0.1)
    slow: list[torch.Tensor] = []
    on_gradient = GradientReduction.on_gradient

    def counting(reduction: GradientReduction, ready: torch.Tensor) -> None:
        slow.append(ready)
        on_gradient(reduction, ready)

    monkeypatch.setattr(GradientReduction, "on_gradient", counting)
    for step in range(4):
        values = torch.full((2, 3), float(step + 1))
        optimizer.zero_grad()
        model(values).square().mean().backward()
        optimizer.step()
        expected.zero_grad()
        (2 * reference(values).square().mean()).backward()
        expected.step()
        torch.testing.assert_close(model.first, reference.first)
        torch.testing.assert_close(model.second, reference.second)
    assert len(slow) == 2  # in the first step
