"""What a gradient's way from autograd into the library costs, by one rank alone.

Prints microseconds a gradient: of the hook itself, which autograd calls; and of the backward pass
with hooks less the same without them. With --limit-us it fails if a small gradient's hook takes
longer in a backward pass.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import ringd
import torch
from ringd import _ringd
from ringd.torch import arena
from ringd.torch.job import Job
from ringd.types import TensorSpec
from torch import nn

COUNT = 100
ROUNDS = 60
# Small ones stay where autograd has made them; the last two are copied into the arena.
ELEMENTS = (64, 4_096, 16_384, 262_144)


class Gradients:
    """COUNT parameters of one size with armed hooks."""

    def __init__(self, job: Job, elements: int) -> None:
        self._job = job
        self._pending: dict[_ringd.GradientHook, None] = {}
        self.parameters = [nn.Parameter(torch.zeros(elements)) for _ in range(COUNT)]
        self._hooks = [_ringd.GradientHook(one, refuse, self._pending, 1) for one in self.parameters]
        specs = [TensorSpec(f"{elements}.{index}", shape=(elements,)) for index in range(COUNT)]
        for hook, registration in zip(self._hooks, job.register(specs), strict=True):
            hook.enter(0, job.in_flight)
            hook.set_arena(arena.allocate(job, (elements,), torch.float32))
            hook.arm(job.context.raw, registration)

    def call_hooks(self) -> None:
        for hook, parameter in zip(self._hooks, self.parameters, strict=True):
            hook(parameter)

    def attach(self) -> None:
        for hook, parameter in zip(self._hooks, self.parameters, strict=True):
            parameter.register_post_accumulate_grad_hook(hook)

    def throw_away(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def make_fresh(self) -> None:
        self.throw_away()
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)

    def loss(self) -> torch.Tensor:
        return torch.stack([parameter.sum() for parameter in self.parameters]).sum()

    def end(self) -> None:
        operations = [hook.operation for hook in self._pending]
        self._job.context.wait_all(operations)
        for hook in self._pending:
            hook.take()
            hook.restart_count()
        self._pending.clear()


def refuse(_: torch.Tensor) -> None:
    raise AssertionError("a gradient was left to Python")


def median(prepare: Callable[[], object], measured: Callable[[], object], end: Callable[[], object]) -> float:
    """Microseconds a gradient."""
    times = []
    for _ in range(ROUNDS):
        prepare()
        start = time.perf_counter()
        measured()
        times.append(time.perf_counter() - start)
        end()
    return statistics.median(times) / COUNT * 1e6


def backward_pass(gradients: Gradients, end: Callable[[], object]) -> float:
    losses: list[torch.Tensor] = []

    def prepare() -> None:
        gradients.throw_away()
        losses[:] = [gradients.loss()]

    return median(prepare, lambda: losses[0].backward(), end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit-us", type=float, help="fail if a hook takes longer")
    limit = parser.parse_args().limit_us
    torch.set_num_threads(1)
    small = 0.0
    with ringd.Context(rank=0, size=1, local_rank=0, local_size=1) as context:
        job = Job(context)
        print(f"{'elements':>9}{'hook, fresh':>14}{'in the arena':>14}{'in a backward pass':>20}   us")
        for elements in ELEMENTS:
            gradients = Gradients(job, elements)
            fresh = median(gradients.make_fresh, gradients.call_hooks, gradients.end)
            in_place = median(lambda: None, gradients.call_hooks, gradients.end)
            without = backward_pass(gradients, lambda: None)
            gradients.attach()
            within = backward_pass(gradients, gradients.end) - without
            small = small or within
            print(f"{elements:9}{fresh:14.2f}{in_place:14.2f}{within:20.2f}")
    return 1 if limit is not None and small > limit else 0


if __name__ == "__main__":
    sys.exit(main())
