"""From tensors to operations and back: what all functions of this package submit through."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch

from ringd.errors import InvalidArgumentError, RingdError
from ringd.torch import cuda_streams
from ringd.torch.job import Job
from ringd.torch.uncompiled import uncompiled
from ringd.types import CollectiveKind, DataType, Memory, ReduceOp, TensorSpec

# What synchronize() gives: a tensor, or a list of them.
Result = TypeVar("Result")

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


class Handle(Generic[Result]):
    """Operations in flight, all on one communicator; for ``poll`` and ``synchronize``.

    Thread safety: any thread may poll; synchronize runs once, further callers get its outcome.
    Ownership: keeps the tensors alive, and is itself kept alive by its job, until it has been
        synchronized.
    """

    __slots__ = (
        "_error",
        "_finish",
        "_job",
        "_kept",
        "_lock",
        "_on_device",
        "_operations",
        "_result",
        "_unknown",
        "communicator",
    )

    def __init__(self, job: Job, result: Result, communicator: int = 0) -> None:
        self.communicator = communicator
        self._unknown = False  # an interrupt may have hidden the number of an operation
        self._job = job
        self._result = result
        self._operations: list[int] = []
        self._on_device: list[int] = []
        self._kept: list[torch.Tensor] = []
        self._finish: list[Callable[[], None]] = []
        self._error: RingdError | None = None
        self._lock = threading.Lock()
        job.in_flight.add(self)

    def submit_on_device(self, registration: int, source: torch.Tensor, destination: torch.Tensor) -> None:
        """Adds an operation in the order of the current stream. Both tensors are dense."""
        device = self._job.device
        # As in submit.
        self._kept += (source, destination)
        try:
            self._on_device.append(device.submit(registration, source, destination, self.communicator))
        except RingdError:
            del self._kept[-2:]
            raise
        except BaseException:
            self._unknown = True
            raise

    def submit(
        self, registration: int, source: torch.Tensor, destination: torch.Tensor, *, alone: bool = False
    ) -> None:
        """Adds an operation on tensors of the host. Both are dense. `alone`: it is the only one,
        and ``synchronize`` follows at once."""
        places = source.data_ptr(), destination.data_ptr()
        # First kept: an interrupt may come between the submission and what is done with its number.
        self._kept += (source, destination)
        context = self._job.context
        submit = context.submit_awaited if alone else context.submit
        try:
            self._operations.append(submit(registration, *places))
        except RingdError:
            del self._kept[-2:]  # nothing has been submitted
            raise
        except BaseException:
            self._unknown = True
            raise

    def abandon(self) -> None:
        """Nobody will synchronize it: its job takes out what has been submitted when that has
        ended, and keeps the tensors until then."""
        self._finish.clear()
        if not (self._operations or self._on_device or self._kept):
            self._job.in_flight.discard(self)
        elif not self._unknown:
            self._job.abandoned.append(self)

    def afterwards(self, action: Callable[[], None]) -> None:
        """Runs when all operations have succeeded, or their stream waits for them, in the thread
        that synchronizes."""
        self._finish.append(action)

    @uncompiled
    def poll(self) -> bool:
        """Whether ``synchronize`` would return at once; False while another thread is in it."""
        device = self._job.device
        try:
            ended = all(self._job.context.test(operation) for operation in list(self._operations)) and all(
                device.has_ended(operation) for operation in list(self._on_device)
            )
        except RingdError:
            ended = True  # synchronize says what is wrong
        # What another thread waits for has been taken out one by one.
        return ended and not self._lock.locked()

    @uncompiled
    def synchronize(self) -> Result:
        """Waits for all operations; raises the first failure after all have ended. Those on a GPU
        the current stream waits for."""
        with self._lock:
            if self._operations:
                try:
                    self._job.context.wait_all(self._operations)
                except RingdError as error:
                    self._error = error
                # An interrupt (Ctrl-C) leaves what is in flight here, to be waited for again.
                self._operations.clear()
            for operation in self._on_device:
                try:
                    self._job.device.wait(operation)
                except RingdError as error:
                    self._error = self._error or error
            self._on_device.clear()
            self._job.in_flight.discard(self)
            self._kept.clear()
            if self._error is not None:
                raise self._error
            while self._finish:
                self._finish[0]()
                self._finish.pop(0)
            return self._result


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
        job.take_out_abandoned()
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


def finished(handle: Handle[Result]) -> Result:
    """``synchronize`` for what gives the program no handle. After an interrupt the job looks after
    it."""
    try:
        return handle.synchronize()
    except RingdError:
        raise
    except BaseException:
        handle.abandon()
        raise


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


def _check_handle(handle: Handle[Any]) -> None:
    if not isinstance(handle, Handle):
        raise InvalidArgumentError(
            f"expected what a function ending in _async or _async_ returns, got {type(handle).__name__}"
        )


def poll(handle: Handle[Any]) -> bool:
    """Whether the operations behind `handle` have ended, so that ``synchronize`` won't block.

    handle: what ``allreduce_async`` or another function that ends in ``_async`` or ``_async_`` has
        returned.
    """
    _check_handle(handle)
    return handle.poll()


def synchronize(handle: Handle[Result]) -> Result:
    """Waits for the operations behind `handle` and returns their result: a tensor, or a list for a
    group. What was reduced on a GPU the current stream waits for, and not the host.

    handle: what ``allreduce_async`` or another function that ends in ``_async`` or ``_async_`` has
        returned. It may be given again; the outcome is the same.

    Raises what has gone wrong, after all operations have ended.
    """
    _check_handle(handle)
    return handle.synchronize()
