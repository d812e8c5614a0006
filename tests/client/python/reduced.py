"""What tests of distributed optimizers have in common."""

from __future__ import annotations

from typing import Any

import ringd.torch as hvd
import torch
from torch import nn


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


def distributed(optimizer: torch.optim.Optimizer, model: nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Sum, **options)


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
