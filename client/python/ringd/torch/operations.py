"""From tensors to operations and back: what all functions of this package submit through."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from ringd.errors import InvalidArgumentError
from ringd.torch import cuda_streams
from ringd.torch.handle import Handle, Result, take_out_abandoned
from ringd.torch.job import Job
from ringd.types import CollectiveKind, DataType, Memory, ReduceOp, TensorSpec

DATA_TYPES: dict[torch.dtype, DataType] = {
    torch.uint8: DataType.UINT8,
    torch.int8: DataType.INT8,
    torch.uint16: DataType.UINT16,
    torch.int16: DataType.INT16,
    torch.uint32: DataType.UINT32,
    torch.int32: DataType.INT32,
    torch.uint64: DataType.UINT64,
    torch.int64: DataType.INT64,
    torch.float16: DataType.FLOAT16,
    torch.bfloat16: DataType.BFLOAT16,
    torch.float32: DataType.FLOAT32,
    torch.float64: DataType.FLOAT64,
    torch.bool: DataType.BOOL,
    torch.float8_e4m3fn: DataType.FLOAT8_E4M3,
    torch.float8_e5m2: DataType.FLOAT8_E5M2,
}


# Of complex numbers, which are moved as pairs.
_PARTS: dict[torch.dtype, DataType] = {
    torch.complex32: DataType.FLOAT16,
    torch.complex64: DataType.FLOAT32,
    torch.complex128: DataType.FLOAT64,
}


def check_is_tensor(tensor: torch.Tensor, function: str, name: str | None) -> None:
    """``InvalidArgumentError`` for numbers, lists, arrays of others."""
    if not isinstance(tensor, torch.Tensor):
        whole_name = function if name is None else f"{function}.{name}"
        raise InvalidArgumentError(
            f"{whole_name}: expected a torch.Tensor, got {type(tensor).__name__}; "
            "torch.as_tensor(...) makes one"
        )


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """``InvalidArgumentError`` for what can't be moved."""
    check_is_tensor(tensor, name, None)
    if tensor.layout != torch.strided:
        raise InvalidArgumentError(
            f"{name}: the tensor is {tensor.layout}; only dense ones can be moved: make an embedding "
            "with sparse=False, or give tensor.to_dense()"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(
            f"{name}: the tensor is on {tensor.device}; this release moves tensors of the host and of "
            "CUDA: give tensor.cpu()"
        )
    if tensor.dtype not in DATA_TYPES and tensor.dtype not in _PARTS:
        raise InvalidArgumentError(f"{name}: {tensor.dtype} is not supported")
    if tensor.numel() > 0 and tensor.data_ptr() == 0:
        raise InvalidArgumentError(
            f"{name}: this {type(tensor).__name__} has no memory of its own; give a plain tensor (of a "
            "DTensor, as fully_shard makes them, tensor.to_local())"
        )


def layout_of(tensor: torch.Tensor) -> tuple[DataType, tuple[int, ...]]:
    """Type and shape of what is moved."""
    shape = tuple(tensor.shape)
    if tensor.dtype in _PARTS:
        return _PARTS[tensor.dtype], (*shape, 2)
    return DATA_TYPES[tensor.dtype], shape


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its elements lie in memory as they are read, else a copy that does."""
    tensor = tensor.detach()
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.contiguous()


def allreduce_spec(
    tensor: torch.Tensor,
    name: str,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    communicator: int = 0,
) -> TensorSpec:
    check_tensor(tensor, name)
    if tensor.is_complex() and op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise InvalidArgumentError(f"{name}: complex numbers have op=Sum and Average, not {op.name}")
    data_type, shape = layout_of(tensor)
    return TensorSpec(
        name,
        CollectiveKind.ALLREDUCE,
        data_type,
        op,
        shape,
        float(prescale),
        float(postscale),
        communicator=communicator,
    )


def checked_root(root_rank: Any) -> int:
    """The number that it is; ``InvalidArgumentError`` for text and fractions."""
    try:
        return operator.index(root_rank)
    except TypeError:
        raise InvalidArgumentError(
            f"root_rank must be a rank's number, not {root_rank!r} ({type(root_rank).__name__})"
        ) from None


def broadcast_spec(tensor: torch.Tensor, name: str, root_rank: int, communicator: int = 0) -> TensorSpec:
    check_tensor(tensor, name)
    data_type, shape = layout_of(tensor)
    return TensorSpec(
        name,
        CollectiveKind.BROADCAST,
        data_type,
        shape=shape,
        root_rank=checked_root(root_rank),
        communicator=communicator,
    )


def start(
    job: Job,
    result: Result,
    work: Sequence[tuple[TensorSpec, torch.Tensor, torch.Tensor]],
    *,
    awaited: bool = False,
) -> Handle[Result]:
    """Submits all of (description, input, output) as one handle, whose result will be `result`. All
    descriptions name the same communicator.

    `awaited`: ``finished`` follows at once. If it is only one, this may block for as long as an
    operation that ranks carry out themselves takes.

    Input and output may be the same tensor. An output that isn't dense is written when the
    operation has ended; so is one whose memory another one of the call has, too (tied weights):
    each is reduced from what was there before.
    """
    if job.abandoned:
        take_out_abandoned(job)
    for spec, _, destination in work:
        _refuse_expanded(spec.name, destination)
    specs = [job.device.placed(spec, source) for spec, source, _ in work]
    registrations = job.register(specs)
    copies = {index: dense(work[index][1]).clone() for index in _sharing(work)}
    handle = Handle(job, result, specs[0].communicator if specs else 0)
    alone = awaited and len(work) == 1
    # If one is refused, those before it are on their way.
    try:
        for index, (registration, spec) in enumerate(zip(registrations, specs, strict=True)):
            copy = copies.get(index)
            _, source, destination = work[index] if copy is None else (spec, copy, copy)
            if spec.memory == Memory.HOST and cuda_streams.is_on_gpu(source):
                _submit_copy(handle, registration, source, destination, alone)
            else:
                _submit(handle, registration, spec.memory, source, destination, alone)
            if copy is not None:
                handle.afterwards(functools.partial(_write_back, work[index][2], copy))
    except BaseException:
        handle.abandon()
        raise
    return handle


def _sharing(work: Sequence[tuple[TensorSpec, torch.Tensor, torch.Tensor]]) -> list[int]:
    """All-reduces of memory that may be another's of these, too; but for one of them."""
    if len(work) < 2:
        return []
    ends = []
    for index, (spec, source, destination) in enumerate(work):
        in_place = source is destination and spec.kind == CollectiveKind.ALLREDUCE
        if in_place and destination.numel() > 0:
            extents = zip(destination.shape, destination.stride(), strict=True)
            last = sum((size - 1) * stride for size, stride in extents)
            begin = destination.data_ptr()
            ends.append((begin, begin + (last + 1) * destination.element_size(), index))
    ends.sort()
    sharing = []
    reached = 0
    for begin, end, index in ends:
        if begin < reached:
            sharing.append(index)
        reached = max(reached, end)
    return sharing


def _refuse_expanded(name: str, destination: torch.Tensor) -> None:
    """An output of which several elements lie at one place can't be written."""
    if destination.layout != torch.strided:
        return
    extents = zip(destination.shape, destination.stride(), strict=True)
    if destination.numel() > 0 and any(size > 1 and stride == 0 for size, stride in extents):
        raise InvalidArgumentError(
            f"tensor '{name}' is expanded: several of its elements are one in memory, and can't get "
            "results of their own; give a copy (tensor.contiguous())"
        )


def _submit_copy(
    handle: Handle[Any], registration: int, source: torch.Tensor, destination: torch.Tensor, alone: bool
) -> None:
    on_host = dense(cuda_streams.copy_to_host(source))
    handle.submit(registration, on_host, on_host, alone=alone)
    handle.afterwards(lambda: _write_back(destination, on_host))


def _submit(
    handle: Handle[Any],
    registration: int,
    memory: int,
    source: torch.Tensor,
    destination: torch.Tensor,
    alone: bool,
) -> None:
    in_place = source is destination
    readable = dense(source)
    writable = readable if in_place else dense(destination)
    if memory == Memory.DEVICE:
        handle.submit_on_device(registration, readable, writable)
    else:
        handle.submit(registration, readable, writable, alone=alone)
    if not in_place:
        return
    if writable.data_ptr() != destination.data_ptr():
        handle.afterwards(lambda: _write_back(destination, writable))
    else:
        # As PyTorch's own in-place functions: a backward pass that needs the old values must fail.
        handle.afterwards(lambda: torch.autograd.graph.increment_version(destination))


def _write_back(destination: torch.Tensor, result: torch.Tensor) -> None:
    # PyTorch lets inference tensors be written in inference mode alone.
    with torch.inference_mode() if destination.is_inference() else torch.no_grad():
        destination.detach().copy_(result)
    torch.autograd.graph.increment_version(destination)
