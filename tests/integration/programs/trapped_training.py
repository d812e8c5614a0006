"""What optimizer_traps.py trains, and how it looks at errors and warnings."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import ringd
import ringd.torch as hvd
import torch
from torch import nn

ROWS = 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(inputs)))


def batch(step: int) -> torch.Tensor:
    """Another one on each rank."""
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(ROWS, 4, generator=generator)


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    return model(batch(step)).square().mean()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def distributed(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)


def expect_equal_ranks(model: nn.Module, what: str) -> None:
    for name, parameter in model.named_parameters():
        root = hvd.broadcast(parameter.detach(), 0, f"check.{name}")
        assert torch.equal(parameter, root), f"{what}: {name} differs between the ranks"


def unnumbered(text: str) -> str:
    """As of the job's first optimizer: each part of this program makes a `Net` of its own."""
    return re.sub(r"optimizer_\d+\.", "", text)


@contextlib.contextmanager
def refused(*words: str) -> Iterator[None]:
    try:
        yield
    except ringd.FailedPreconditionError as error:
        text = unnumbered(str(error))
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"not refused; expected {words}")


@contextlib.contextmanager
def warned(count: int, *words: str) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [unnumbered(str(warning.message)) for warning in caught]
    assert len(texts) == count, texts
    for text in texts:
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in: {text}"
