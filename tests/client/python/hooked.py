"""A parameter with the hook that takes its gradient from autograd."""

from __future__ import annotations

from typing import Any

import torch
from ringd import _ringd
from ringd.torch import arena
from ringd.torch.job import Job
from ringd.types import TensorSpec
from torch import nn

SMALL = 12
LARGE = 16_384  # 64 KiB


class Hooked:
    """A parameter whose gradient is armed, or not."""

    def __init__(self, job: Job, elements: int, passes: int = 1, *, armed: bool = True) -> None:
        self.job = job
        self.parameter = nn.Parameter(torch.zeros(elements))
        self.slow_calls: list[torch.Tensor] = []
        self.pending: dict[Any, None] = {}
        self.hook = _ringd.GradientHook(self.parameter, self.slow_calls.append, self.pending, passes)
        self.spec = TensorSpec(f"gradient of {elements}", shape=(elements,), postscale=2.0)
        self.registration = job.registration(self.spec)
        self.hook.enter(0, job.in_flight)
        self.handle = self.parameter.register_post_accumulate_grad_hook(self.hook)
        if armed:
            self.hook.set_arena(arena.allocate(job, (elements,), torch.float32))
            self.arm()

    def arm(self) -> None:
        self.hook.arm(self.job.context.raw, self.registration)

    def backward(self, value: float = 1.0) -> None:
        (self.parameter * value).sum().backward()

    def wait(self) -> None:
        self.job.context.wait(self.hook.operation)
        self.hook.take()
        self.pending.clear()
        self.hook.restart_count()

    def expect_left_to_python(self) -> None:
        assert len(self.slow_calls) == 1
        assert self.slow_calls[0] is self.parameter
        assert self.hook.operation == 0
        assert not self.pending

    def expect_submitted(self) -> None:
        assert not self.slow_calls
        assert self.hook.operation != 0
        assert list(self.pending) == [self.hook]
        assert self.job.has_in_flight(0)
        assert self.hook.passes_left == 0
