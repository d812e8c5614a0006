"""Rank program: large gradients beside small ones.

Training on parts of a batch equals training on the whole of it, whatever makes and uses the
gradients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ringd.torch as hvd
import torch
from torch import nn

BATCH = 24
STEPS = 4
WIDTH = 128  # squared, in 8 bytes each: 128 KiB
Training = Callable[[Any, nn.Module, torch.Tensor, torch.Tensor], None]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, WIDTH)
        self.wide = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        # The same weights twice: autograd sums two gradients.
        hidden = torch.tanh(self.wide(torch.tanh(self.wide(torch.tanh(self.first(inputs))))))
        return self.last(hidden)


class Convolution(nn.Module):
    """In channels-last order, in which no gradient is contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(32, 64, 3)
        self.last = nn.Linear(64, 2)
        self.to(memory_format=torch.channels_last)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        images = inputs.repeat(1, 48).view(-1, 32, 3, 3).contiguous(memory_format=torch.channels_last)
        return self.last(self.wide(images).flatten(1))


def make_model(kind: type[nn.Module] = Net) -> nn.Module:
    torch.manual_seed(3)
    return kind().double()


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(4)
    return [
        (
            torch.randn(BATCH, 6, generator=generator, dtype=torch.float64),
            torch.randn(BATCH, 2, generator=generator, dtype=torch.float64),
        )
        for _ in range(STEPS)
    ]


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def plain(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss_of(model, inputs, targets).backward()
    optimizer.step()


def keeping_gradients(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    optimizer.zero_grad(set_to_none=False)
    loss_of(model, inputs, targets).backward()
    optimizer.step()


def replacing_gradients(
    optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    loss_of(model, inputs, targets).backward()
    optimizer.step()


def clipped(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss_of(model, inputs, targets).backward()
    if isinstance(optimizer, torch.optim.SGD) and hasattr(optimizer, "synchronize"):
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()


def in_two_passes(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    optimizer.zero_grad()
    half = len(inputs) // 2
    for part in (slice(0, half), slice(half, None)):
        (loss_of(model, inputs[part], targets[part]) / 2).backward()
    optimizer.step()


def two_threads(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Hooks of different parameters at once."""
    optimizer.zero_grad()
    parts: list[list[nn.Parameter]] = [[], []]
    for index, parameter in enumerate(model.parameters()):
        parts[index % 2].append(parameter)
    loss = loss_of(model, inputs, targets)
    threads = [
        threading.Thread(target=loss.backward, kwargs={"inputs": part, "retain_graph": True})
        for part in parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    optimizer.step()


def sgd(**options: Any) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)


def adamw(**options: Any) -> Callable[[nn.Module], torch.optim.Optimizer]:
    # Without weight decay, as the unused layer has gradients of zero here, and none there.
    return lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0, **options)


def expect_same_training(
    training: Training,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    kind: type[nn.Module] = Net,
    compiled: bool = False,
    **options: Any,
) -> None:
    make = make_optimizer or sgd()
    alone, together = make_model(kind), make_model(kind)
    reference = make(alone)
    distributed = hvd.DistributedOptimizer(make(together), together.named_parameters(), **options)
    runs: Any = torch.compile(together, backend="aot_eager") if compiled else together
    share = BATCH // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for inputs, targets in batches():
        training(reference, alone, inputs, targets)
        training(distributed, runs, inputs[mine], targets[mine])
        gradient = together.get_parameter("wide.weight").grad
        assert gradient is not None
        if training is not keeping_gradients:
            kept.append((gradient, gradient.clone()))
    what = f"{training.__name__} {kind.__name__} {type(reference).__name__} {options}"
    for (name, expected), actual in zip(alone.named_parameters(), together.parameters(), strict=True):
        difference = float((expected - actual).detach().abs().max())
        assert difference < 1e-12, f"{what}: {name} differs by {difference}"
    for step, (gradient, copy) in enumerate(kept):
        assert torch.equal(gradient, copy), f"{what}: the gradient kept from step {step} was overwritten"


def same_trainings() -> None:
    for training in (plain, keeping_gradients, replacing_gradients, clipped, two_threads):
        expect_same_training(training)
    expect_same_training(in_two_passes, backward_passes_per_step=2)
    expect_same_training(plain, kind=Convolution)
    for make in (sgd(foreach=True), sgd(fused=True), adamw(foreach=True), adamw(fused=True)):
        expect_same_training(plain, make)
        expect_same_training(keeping_gradients, make)
    for training in (plain, keeping_gradients):
        expect_same_training(training, compiled=True)
    expect_same_training(in_two_passes, compiled=True, backward_passes_per_step=2)


def address_of_gradient(parameter: torch.Tensor) -> int:
    assert parameter.grad is not None
    return parameter.grad.data_ptr()


def the_memory_of_gradients_stays() -> None:
    """The reduced ones are in one place; zero_grad() does not give it back."""
    model = make_model()
    optimizer: Any = hvd.DistributedOptimizer(sgd()(model), model.named_parameters())
    inputs, targets = batches()[0]
    places: set[tuple[int, ...]] = set()
    for step in range(6):
        optimizer.zero_grad(set_to_none=step % 3 != 2)
        loss_of(model, inputs, targets).backward()
        optimizer.step()
        places.add(tuple(address_of_gradient(parameter) for parameter in model.parameters()))
    assert len(places) == 1, places


def a_gradient_of_a_gradient() -> None:
    """With create_graph the graph stays until the step."""
    model = make_model()
    optimizer: Any = hvd.DistributedOptimizer(sgd()(model), model.named_parameters())
    inputs, targets = batches()[0]
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward(create_graph=True)
        gradient = model.get_parameter("wide.weight").grad
        assert gradient is not None
        assert gradient.grad_fn is not None
        (second,) = torch.autograd.grad(gradient.square().sum(), model.get_parameter("wide.weight"))
        assert second.abs().sum() > 0
        optimizer.synchronize()
        gradient = model.get_parameter("wide.weight").grad
        assert gradient is not None
        assert gradient.grad_fn is not None  # for optimizers that differentiate it in step()
        with optimizer.skip_synchronize():
            optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    same_trainings()
    the_memory_of_gradients_stays()
    a_gradient_of_a_gradient()
    hvd.shutdown()
    print("all is well")


main()
