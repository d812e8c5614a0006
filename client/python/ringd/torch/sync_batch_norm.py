"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from ringd.torch.allreduce import Sum, allreduce_
from ringd.torch.job import Communicator, current
from ringd.torch.process_set import ProcessSet, communicator_of, global_process_set
from ringd.torch.uncompiled import uncompiled

# The name under which each module's sums travel, and on which communicator. Not in the module: a
# copy of it needs another one.
_names: weakref.WeakKeyDictionary[SyncBatchNorm, tuple[weakref.ref[Communicator], str]] = (
    weakref.WeakKeyDictionary()
)


class SyncBatchNorm(_BatchNorm):
    """``torch.nn.BatchNorm1d``, ``2d`` or ``3d``, with mean and variance of all ranks' batches.

    The batches may differ in size; one may be empty. Each training step waits twice for all ranks:
    forward for the sums that mean and variance are made of, backward for two sums of gradients. All
    ranks must use their modules of this class in the same order. The gradients of ``weight`` and
    ``bias`` are those of this rank's batch; ``DistributedOptimizer`` reduces them as all others. In
    evaluation, and in a job of one rank, this class computes what PyTorch's own computes.

    num_features: C of an input of shape (N, C, ...).
    eps: added to the variance. Default: 1e-5.
    momentum: the weight of a batch in the running mean and variance; None for the mean over all
        batches. Default: 0.1.
    affine: whether there are ``weight`` and ``bias``. Default: True.
    track_running_stats: whether evaluation uses running mean and variance, in place of the batch's.
        Default: True.
    process_set: the ranks whose batches are taken together; the others can't train with it.
        Default: all.

    Its call raises ``ValueError`` if all ranks together have fewer than two values of a channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.size(1) != self.num_features:
            shape = tuple(input.shape)
            raise ValueError(
                f"SyncBatchNorm expects an input of shape (N, {self.num_features}, ...), not {shape}"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._forward_over_ranks(input) if self.training else super().forward(input)

    @uncompiled
    def _forward_over_ranks(self, input: torch.Tensor) -> torch.Tensor:
        communicator = communicator_of(self.process_set, current())
        if communicator.size == 1:
            return super().forward(input)
        self._check_input_dim(input)
        name = self._operation_name(communicator)
        output, mean, variance, count = _Normalize.apply(
            input, self.weight, self.bias, self.eps, name, self.process_set
        )
        if self.track_running_stats:
            self._track(mean, variance * (count / (count - 1)))
        return output

    def _track(self, mean: torch.Tensor, unbiased_variance: torch.Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        newest = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        for running, measured in ((self.running_mean, mean), (self.running_var, unbiased_variance)):
            assert running is not None
            running.lerp_(measured.to(running), newest)

    def _operation_name(self, communicator: Communicator) -> str:
        """The same on all ranks: numbered in the order of first use."""
        known, name = _names.get(self, (lambda: None, ""))
        if known() is not communicator:
            name = communicator.automatic_names.next("sync_batch_norm")
            _names[self] = (weakref.ref(communicator), name)
        return name


class _Normalize(torch.autograd.Function):
    """Output, mean, variance (biased) and count of each channel."""

    @staticmethod
    def forward(
        context: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        name: str,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
        mean, variance, count = _statistics(input, name, process_set)
        scale = torch.rsqrt(variance + eps)
        context.save_for_backward(input, weight, mean, scale)
        context.bias_dtype = None if bias is None else bias.dtype
        context.count = count
        context.name = name
        context.process_set = process_set
        # Evaluation's arithmetic with the batch's figures is the normalization.
        precise = _precise(input)
        output = functional.batch_norm(
            precise,
            mean.to(precise.dtype),
            variance.to(precise.dtype),
            None if weight is None else weight.to(precise.dtype),
            None if bias is None else bias.to(precise.dtype),
            training=False,
            eps=eps,
        ).to(input.dtype)
        context.mark_non_differentiable(mean, variance)
        return output, mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        input, weight, mean, scale = context.saved_tensors
        dims = [0, *range(2, input.dim())]
        gradient = _precise(gradient)
        normalized = (_precise(input) - _channels(mean, gradient)) * _channels(scale, gradient)
        of_bias = gradient.sum(dims)
        of_weight = (gradient * normalized).sum(dims)
        of_input = None
        if context.needs_input_grad[0]:
            sums = torch.stack([of_bias, of_weight]).double()
            name = f"{context.name}.backward"
            means = allreduce_(sums, op=Sum, name=name, process_set=context.process_set) / context.count
            of_input = gradient - _channels(means[0], gradient) - normalized * _channels(means[1], gradient)
            of_input = of_input * _channels(scale if weight is None else scale * weight, gradient)
            of_input = of_input.to(input.dtype)
        return (
            of_input,
            of_weight.to(weight.dtype) if context.needs_input_grad[1] else None,
            of_bias.to(context.bias_dtype) if context.needs_input_grad[2] else None,
            None,
            None,
            None,
        )


def _statistics(
    input: torch.Tensor, name: str, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Mean and variance of each channel over all ranks, in float64, and how many values each
    channel has."""
    own = input.numel() // input.size(1)
    sums = torch.zeros(2 * input.size(1) + 1, dtype=torch.float64, device=input.device)
    if own > 0:
        variance, mean = torch.var_mean(_precise(input), [0, *range(2, input.dim())], correction=0)
        mean = mean.double()
        sums = torch.cat([own * mean, own * (variance.double() + mean.square()), sums.new_tensor([own])])
    allreduce_(sums, op=Sum, name=f"{name}.forward", process_set=process_set)
    count = int(sums[-1].item())
    if count < 2:
        raise ValueError(
            f"SyncBatchNorm needs two values of a channel to train; all ranks together have {count}"
        )
    mean, square = (sums[:-1] / count).view(2, -1)
    return mean, (square - mean.square()).clamp_(min=0), count


def _precise(tensor: torch.Tensor) -> torch.Tensor:
    """In float32 at least."""
    return tensor.float() if tensor.element_size() < 4 else tensor


def _channels(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """One value for each channel, in `like`'s type, to be combined with it."""
    return values.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))
