"""Where a parameter's gradient is reduced, and which memory it takes for that."""

from __future__ import annotations

import pytest
import ringd
import torch
from ringd.torch import arena, gradient_slot
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Communicator, Job
from torch import nn

LARGE = 16_384  # 64 KiB


class Slotted:
    """A parameter whose gradient is doubled by its reduction."""

    def __init__(self, job: Job, name: str = "slot") -> None:
        self.job = job
        self.parameter = nn.Parameter(torch.zeros(LARGE))
        self.pending: dict[GradientSlot, None] = {}
        self.slow_calls = 0
        self.slot = GradientSlot(self.parameter, self.slow, self.pending, 1, ringd.torch.Compression.none)
        self.slot.describe(job, Communicator(0, 1), name, ringd.ReduceOp.SUM, 1.0, 2.0)
        self.slot.registration = job.registration(self.slot.spec)
        self.parameter.register_post_accumulate_grad_hook(self.slot)

    def slow(self, _: torch.Tensor) -> None:
        self.slow_calls += 1
        self.slot.submit(accumulated=True)

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


def test_gradients_that_autograd_gives_one_memory_are_each_reduced(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> torch.Tensor:
        raise ringd.ResourceExhaustedError("the arena is full")

    monkeypatch.setattr(gradient_slot, "allocate", is_full)
    first, second = Slotted(job, "first"), Slotted(job, "second")
    # Both are the gradient of the sum.
    total = first.parameter.unsqueeze(0) + second.parameter.unsqueeze(0)
    (total * 3.0).sum().backward()
    assert first.gradient.data_ptr() == second.gradient.data_ptr()
    for slotted in (first, second):
        job.context.wait_all([slotted.slot.operation])
        slotted.slot.finish()
    assert first.gradient.unique().tolist() == second.gradient.unique().tolist() == [6.0]
    assert first.gradient.data_ptr() != second.gradient.data_ptr()


@pytest.mark.parametrize("amid", ["_begin", "note"])
def test_what_was_interrupted_while_it_was_submitted_is_not_submitted_again(
    job: Job, monkeypatch: pytest.MonkeyPatch, amid: str
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    slotted = Slotted(job)
    slotted.step(1.0)  # it is armed now
    place = slotted.slot.arena_address
    slotted.slot.set_arena(slotted.slot.arena)
    with monkeypatch.context() as patch:
        patch.setattr(GradientSlot, amid, interrupt)
        with pytest.raises(KeyboardInterrupt):
            slotted.step(1.0)
    # Other ranks may still write there.
    assert slotted.slot.arena_address == place
    for _ in range(2):
        slotted.parameter.grad = None
        with pytest.raises(ringd.FailedPreconditionError, match="'slot' was being submitted.*shutdown"):
            slotted.step(1.0)


def test_an_operation_that_an_interrupted_wait_has_taken_is_discarded(job: Job) -> None:
    slotted = Slotted(job)
    slotted.parameter.sum().backward()
    job.context.wait(slotted.slot.operation)
    slotted.slot.discard()
    assert slotted.slot.operation == 0
