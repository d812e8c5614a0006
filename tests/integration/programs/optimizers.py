"""Rank program: training on parts of a batch equals training on the whole of it in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ringd.torch as hvd
import torch
from torch import nn

BATCH = 24
STEPS = 5
Training = Callable[[Any, nn.Module, torch.Tensor, torch.Tensor], None]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.second = nn.Linear(16, 16)
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Linear(16, 16)
        self.last = nn.Linear(16, 2)
        for parameter in self.frozen.parameters():
            parameter.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(inputs))))
        return self.last(self.frozen(hidden))


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return Net().double()


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


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def searching_along_lines(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")


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
    if hasattr(optimizer, "synchronize"):
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()


def with_closure(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        return loss

    optimizer.step(closure)


def in_two_passes(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    optimizer.zero_grad()
    half = len(inputs) // 2
    for part in (slice(0, half), slice(half, None)):
        (loss_of(model, inputs[part], targets[part]) / 2).backward()
    optimizer.step()


def in_a_thread(optimizer: Any, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    worker = threading.Thread(target=plain, args=(optimizer, model, inputs, targets))
    worker.start()
    worker.join()


def expect_same_training(
    training: Training,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
    tolerance: float = 1e-12,
    **options: Any,
) -> None:
    what = f"{training.__name__} {options}"
    alone, together = make_model(), make_model()
    reference = make_optimizer(alone)
    if not options.pop("unnamed", False):
        options["named_parameters"] = together.named_parameters()
    distributed = hvd.DistributedOptimizer(make_optimizer(together), **options)
    assert isinstance(distributed, type(reference))
    share = BATCH // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for inputs, targets in batches():
        training(reference, alone, inputs, targets)
        training(distributed, together, inputs[mine], targets[mine])
        gradient = together.get_parameter("first.weight").grad
        assert gradient is not None
        if training is not keeping_gradients:
            kept.append((gradient, gradient.clone()))
    for (name, expected), actual in zip(alone.named_parameters(), together.parameters(), strict=True):
        difference = float((expected - actual).detach().abs().max())
        assert difference < tolerance, f"{what}: {name} differs by {difference}"
    for step, (gradient, copy) in enumerate(kept):
        assert torch.equal(gradient, copy), f"{what}: the gradient kept from step {step} was overwritten"


def same_trainings() -> None:
    expect_same_training(plain)
    expect_same_training(plain, unnamed=True)
    expect_same_training(keeping_gradients)
    expect_same_training(replacing_gradients)
    expect_same_training(clipped)
    expect_same_training(with_closure)
    expect_same_training(in_two_passes, backward_passes_per_step=2)
    expect_same_training(in_a_thread)
    expect_same_training(plain, gradient_predivide_factor=4.0)
    expect_same_training(plain, compression=hvd.Compression.fp16, tolerance=1e-2)
    expect_same_training(keeping_gradients, compression=hvd.Compression.bf16, tolerance=1e-1)
    # Without weight decay, as the unused layer has gradients of zero here, and none there.
    expect_same_training(
        plain, lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    )
    expect_same_training(
        with_closure, lambda model: torch.optim.LBFGS(model.parameters(), max_iter=3), tolerance=1e-8
    )
    expect_same_training(with_closure, searching_along_lines, tolerance=1e-8)


def steps_use_the_same_memory() -> None:
    """In the arena, unless the program keeps a gradient."""
    model = nn.Linear(5, 3)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    for training in (plain, keeping_gradients, replacing_gradients):
        places = set()
        for _ in range(4):
            training(optimizer, model, torch.ones(2, 5), torch.zeros(2, 3))
            assert model.weight.grad is not None
            places.add(model.weight.grad.data_ptr())
        assert len(places) == 1, f"{training.__name__}: {places}"
    kept = model.weight.grad.view(-1)
    plain(optimizer, model, torch.ones(2, 5), torch.zeros(2, 3))
    assert model.weight.grad.data_ptr() != kept.data_ptr()


def branches_that_ranks_take_by_turns() -> None:
    """A parameter that only some ranks use counts as zero on the others."""
    branches = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(2)])
    for branch in branches:
        nn.init.ones_(branch.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(branches.parameters(), lr=1.0), branches.named_parameters(), op=hvd.Sum
    )
    users = [len(range(turn, hvd.size(), 2)) for turn in range(2)]
    for _ in range(3):
        optimizer.zero_grad()
        branches[hvd.rank() % 2](torch.ones(1, 2)).sum().backward()
        optimizer.step()
    for turn, branch in enumerate(branches):
        assert branch.weight.tolist() == [[1.0 - 3 * users[turn]] * 2]


def rest_of_an_optimizer() -> None:
    model = make_model()
    original = sgd(model)
    early = torch.optim.lr_scheduler.StepLR(original, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(original, model.named_parameters())
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    inputs, targets = batches()[0]
    plain(optimizer, model, inputs * (hvd.rank() + 1), targets)
    early.step()
    late.step()
    assert optimizer.param_groups[0]["lr"] == 0.1 * 0.25
    extra = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer.add_param_group({"params": [extra], "lr": 1.0, "momentum": 0.0})
    optimizer.zero_grad()
    (loss_of(model, inputs, targets) + extra.sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    assert extra.tolist() == [-mean] * 3
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    # The same optimizer goes on in the process's next job.
    hvd.shutdown()
    hvd.init()
    plain(optimizer, model, inputs, targets)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, hvd.broadcast(parameter.detach(), 0)), name


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    same_trainings()
    steps_use_the_same_memory()
    branches_that_ranks_take_by_turns()
    rest_of_an_optimizer()
    print("all is well")


main()
