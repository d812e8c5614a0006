"""What tests of distributed optimizers have in common."""

from __future__ import annotations

from typing import Any

import ringd.torch as hvd
import torch
from torch import nn


def distributed(optimizer: torch.optim.Optimizer, model: nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Sum, **options)


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
