"""Where a parameter's gradient is reduced, and which memory it takes for that."""

from __future__ import annotations

import pytest
import ringd
import torch
from ringd.torch import arena
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Communicator, Job
from torch import nn

LARGE = 16_384  # 64 KiB


class Slotted:
    """A parameter whose gradient is doubled by its reduction."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.parameter = nn.Parameter(torch.zeros(LARGE))
        self.pending: dict[GradientSlot, None] = {}
        self.slow_calls = 0
        self.slot = GradientSlot(self.parameter, self.slow, self.pending, 1, ringd.torch.Compression.none)
        self.slot.describe(job, Communicator(0, 1), "slot", ringd.ReduceOp.SUM, 1.0, 2.0)
        self.slot.registration = job.registration(self.slot.spec)
        self.parameter.register_post_accumulate_grad_hook(self.slot)

    def slow(self, _: torch.Tensor) -> None:
        self.slow_calls += 1
        self.slot.submit()

    @property
    def gradient(self) -> torch.Tensor:
        assert self.parameter.grad is not None
        return self.parameter.grad

    def step(self, value: float) -> None:
        (self.parameter * value).sum().backward()
        assert list(self.pending) == [self.slot]
        self.job.context.wait_all([self.slot.operation])
        self.slot.finish()
        self.pending.clear()
        self.slot.restart_count()


def test_a_slot_arms_itself_with_its_first_gradient(job: Job) -> None:
    slotted = Slotted(job)
    for step in range(3):
        slotted.parameter.grad = None
        slotted.step(1.0)
        assert slotted.gradient is slotted.slot.arena
        assert slotted.gradient.unique().tolist() == [2.0], step
    assert slotted.slow_calls == 1


@pytest.mark.parametrize("set_to_none", [True, False])
def test_memory_that_share_memory_has_given_back_is_not_used_again(job: Job, *, set_to_none: bool) -> None:
    slotted = Slotted(job)
    slotted.step(1.0)
    nn.ParameterList([slotted.parameter]).share_memory()
    assert slotted.gradient.is_shared()
    # Takes what the gradient has left.
    others = [arena.allocate(job, (LARGE,), torch.float32) for _ in range(3)]
    for value in (3.0, 4.0):
        if set_to_none:
            slotted.parameter.grad = None
        else:
            slotted.gradient.zero_()
        slotted.step(value)
        assert slotted.gradient.unique().tolist() == [2 * value]
        assert [other.unique().tolist() for other in others] == [[0.0]] * 3
    assert slotted.slow_calls == 2
    assert slotted.gradient is slotted.slot.arena
