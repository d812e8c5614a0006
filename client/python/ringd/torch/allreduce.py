"""Reductions over all ranks or a process set, with the meanings that Horovod gave them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ringd.errors import InvalidArgumentError
from ringd.torch.compression import Compression, Compressor
from ringd.torch.handle import Handle, Result, finished
from ringd.torch.job import Communicator, Job, current
from ringd.torch.operations import allreduce_spec, check_is_tensor, check_tensor, start
from ringd.torch.process_set import ProcessSet, communicator_of, global_process_set
from ringd.torch.uncompiled import uncompiled
from ringd.types import ReduceOp

Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

_DIFFERENTIABLE = (Average, Sum)


def chosen_op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    """`op`, or what the older argument `average` says; Average if neither is given."""
    if average is not None:
        if not isinstance(average, bool):
            raise TypeError(
                f"average is {average!r}, but must be True or False: give operator and name by "
                "their words, op=hvd.Max, name='loss'"
            )
        if op is not None:
            raise ValueError("give op or average, not both")
        return Average if average else Sum
    return Average if op is None else checked_op(op)


def checked_op(op: ReduceOp) -> ReduceOp:
    """`op`, if it is one. A number is none: Horovod numbers them otherwise."""
    if isinstance(op, ReduceOp):
        return op
    raise InvalidArgumentError(
        f"op is {op!r}: give one by its name, hvd.Average, hvd.Sum, hvd.Min, hvd.Max or hvd.Product"
    )


def full_name(communicator: Communicator, name: str | None) -> str:
    return communicator.automatic_names.next("allreduce") if name is None else f"allreduce.{name}"


def member_names(communicator: Communicator, name: str | None, count: int) -> list[str]:
    names = communicator.automatic_names
    base = names.next("grouped_allreduce", count) if name is None else f"grouped_allreduce.{name}"
    return [f"{base}.{index + 1}of{count}" for index in range(count)]


def _start(
    job: Job,
    communicator: Communicator,
    names: Sequence[str],
    sources: Sequence[torch.Tensor],
    destinations: Sequence[torch.Tensor],
    result: Result,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    *,
    awaited: bool = False,
) -> Handle[Result]:
    if prescale == 0 or postscale == 0:
        raise InvalidArgumentError("prescale_factor and postscale_factor must not be 0")
    triples = zip(names, sources, destinations, strict=True)
    work = [
        (
            allreduce_spec(source, name, op, prescale, postscale, communicator.number),
            source,
            destination,
        )
        for name, source, destination in triples
    ]
    return start(job, result, work, awaited=awaited)


def _output_for(tensor: torch.Tensor, name: str) -> torch.Tensor:
    check_tensor(tensor, name)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def _start_group(
    tensors: Iterable[torch.Tensor],
    name: str | None,
    average: bool | None,
    op: ReduceOp | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> Handle[list[torch.Tensor]]:
    tensors = list(tensors)
    job = current()
    communicator = communicator_of(process_set, job)
    chosen = chosen_op(average, op)
    names = member_names(communicator, name, len(tensors))
    outputs = (
        tensors
        if in_place
        else [_output_for(tensor, whole_name) for tensor, whole_name in zip(tensors, names, strict=True)]
    )
    return _start(job, communicator, names, tensors, outputs, outputs, chosen, prescale, postscale)


def _start_one(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    in_place: bool,
    awaited: bool,
) -> Handle[torch.Tensor]:
    job = current()
    communicator = communicator_of(process_set, job)
    whole_name = full_name(communicator, name)
    output = tensor if in_place else _output_for(tensor, whole_name)
    return _start(
        job,
        communicator,
        [whole_name],
        [tensor],
        [output],
        output,
        op,
        prescale,
        postscale,
        awaited=awaited,
    )


@uncompiled
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Begins to reduce `tensor` over all ranks into a new one, and returns at once; ``synchronize``
    gives it.

    `tensor` must not be changed until then. Arguments: as ``allreduce``.
    """
    chosen = chosen_op(average, op)
    return _start_one(
        tensor, name, chosen, prescale_factor, postscale_factor, process_set, in_place=False, awaited=False
    )


@uncompiled
def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """As ``allreduce_async``, in place. Arguments: as ``allreduce``."""
    chosen = chosen_op(average, op)
    return _start_one(
        tensor, name, chosen, prescale_factor, postscale_factor, process_set, in_place=True, awaited=False
    )


@uncompiled
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The ranks' tensors reduced, as a new tensor of their shape. Blocks until the process set's
    ranks have called it. Differentiable for Sum and Average.

    tensor: the same type and shape on all ranks.
    average: Horovod's older argument: False is ``op=Sum``, True is ``op=Average``.
    name: the same on all ranks. Default: unnamed calls are matched by their order. Give one to what
        comes each step.
    compression: ``Compression.fp16`` or ``bf16`` halves what float32 takes on the way. Default:
        ``Compression.none``.
    op: Average, Sum, Min, Max or Product. Default: Average.
    prescale_factor: each rank's tensor is multiplied by it before. Default: 1.0.
    postscale_factor: the result is multiplied by it. Default: 1.0.
    process_set: the ranks that take part, and that an average is over. Default: all.

    Raises ``InvalidArgumentError`` if the ranks disagree, or if this rank is not in the process
    set; ``JobFailedError`` if the job has failed.
    """
    chosen = chosen_op(average, op)
    check_is_tensor(tensor, "allreduce", name)
    compressed, context = compression.compress(tensor)
    if torch.is_grad_enabled() and compressed.requires_grad:
        (reduced,) = _AllReduce.apply(
            name, chosen, prescale_factor, postscale_factor, process_set, False, compressed
        )
    else:
        reduced = finished(
            _start_one(
                compressed,
                name,
                chosen,
                prescale_factor,
                postscale_factor,
                process_set,
                in_place=False,
                awaited=True,
            )
        )
    return compression.decompress(reduced, context)


@uncompiled
def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks in place and returns it. Arguments: as ``allreduce``."""
    chosen = chosen_op(average, op)
    return finished(
        _start_one(
            tensor, name, chosen, prescale_factor, postscale_factor, process_set, in_place=True, awaited=True
        )
    )


@uncompiled
def grouped_allreduce_async(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """As ``allreduce_async`` for several tensors; ``synchronize`` gives a list. Arguments: as
    ``grouped_allreduce``."""
    return _start_group(
        tensors, name, average, op, prescale_factor, postscale_factor, process_set, in_place=False
    )


@uncompiled
def grouped_allreduce_async_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """As ``grouped_allreduce_async``, in place. Arguments: as ``grouped_allreduce``."""
    return _start_group(
        tensors, name, average, op, prescale_factor, postscale_factor, process_set, in_place=True
    )


@uncompiled
def grouped_allreduce(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As ``allreduce`` for several tensors at once; gives a list.

    tensors: equally many on all ranks, each with the type and shape that it has on the others.
    average, compression, op, prescale_factor, postscale_factor, process_set: as those of
        ``allreduce``, for all of them.
    name: of the group, the same on all ranks. Default: unnamed calls are matched by their order.
    """
    chosen = chosen_op(average, op)
    tensors = list(tensors)  # a generator is good for one walk
    for tensor in tensors:
        check_is_tensor(tensor, "grouped_allreduce", name)
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [tensor for tensor, _ in pairs]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in compressed):
        reduced = _AllReduce.apply(
            name, chosen, prescale_factor, postscale_factor, process_set, True, *compressed
        )
    else:
        reduced = finished(
            grouped_allreduce_async(
                compressed,
                name=name,
                op=chosen,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
                process_set=process_set,
            )
        )
    contexts = [context for _, context in pairs]
    return [
        compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts, strict=True)
    ]


@uncompiled
def grouped_allreduce_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As ``allreduce_`` for several tensors at once. Arguments: as ``grouped_allreduce``."""
    return finished(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    )


class _AllReduce(torch.autograd.Function):
    """y = post * sum(pre * x of each rank), over size for an average: its gradient is the same of
    dy."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: ReduceOp,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        grouped: bool,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, op, prescale, postscale, process_set, grouped)
        if not grouped:
            handle = _start_one(
                tensors[0], name, op, prescale, postscale, process_set, in_place=False, awaited=True
            )
            return (finished(handle),)
        reduced = finished(grouped_allreduce_async(tensors, None, name, op, prescale, postscale, process_set))
        return tuple(reduced)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name, op, prescale, postscale, process_set, grouped = ctx.arguments
        if op not in _DIFFERENTIABLE:
            raise InvalidArgumentError(
                f"allreduce with op={op.name} has no gradient; only Sum and Average do"
            )
        name = None if name is None else f"{name}.gradient"
        # The public functions, so that a gradient's gradient can be had.
        if grouped:
            results = grouped_allreduce(
                gradients, None, name, Compression.none, op, prescale, postscale, process_set
            )
        else:
            results = [
                allreduce(gradients[0], None, name, Compression.none, op, prescale, postscale, process_set)
            ]
        return (None, None, None, None, None, None, *results)
