"""Where one parameter's gradient is reduced."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch

from ringd.errors import NotFoundError, RingdError
from ringd.torch.arena import allocate
from ringd.torch.compression import Compressor
from ringd.torch.job import Job, is_current
from ringd.torch.operations import allreduce_spec, dense
from ringd.types import ReduceOp, TensorSpec

_storage_use_count = getattr(torch._C, "_storage_Use_Count", None)


def _uses(holder: list[torch.Tensor]) -> tuple[int, int]:
    """How often the tensor in `holder` and its memory are referred to."""
    tensor = holder[0]
    memory = _storage_use_count(tensor.untyped_storage()._cdata) if _storage_use_count else sys.maxsize
    return sys.getrefcount(tensor), memory


# What _uses gives when nobody but the holder has the tensor.
_UNSHARED = _uses([torch.zeros(1)])

# So many bytes of a gradient are compared to see whether it was changed through `.data`.
_COMPARED_BYTES = 8


def _first_bytes(tensor: torch.Tensor) -> bytes:
    size = min(_COMPARED_BYTES, tensor.numel() * tensor.element_size())
    return ctypes.string_at(tensor.data_ptr(), size) if size > 0 else b""


class GradientSlot:
    """One parameter's way through the reductions.

    The reduced gradient lies in the arena and becomes ``p.grad``. While it stays there
    (``set_to_none=False``, or several backward passes) gradients are accumulated where they are
    reduced, and nothing is copied. A gradient from elsewhere, as autograd makes after
    ``set_to_none=True``, is combined into the arena from where it is, or copied there as it is
    submitted; nothing is copied back. It must stay as it is until the result is there. A tensor
    that the program has kept from an earlier step is never overwritten: the slot then takes new
    memory.

    Where the arena is full the gradient is reduced in its own memory, through copies.

    Thread safety: one thread at a time, that of the parameter's backward pass or of
        ``synchronize``.
    """

    __slots__ = (
        "_arena",
        "_arena_full",
        "_compression",
        "_context",
        "_dtype",
        "_first_bytes",
        "_gradient",
        "_job",
        "_result",
        "_source",
        "_version",
        "communicator",
        "operation",
        "parameter",
        "registration",
        "spec",
    )

    def __init__(
        self,
        job: Job,
        parameter: torch.Tensor,
        name: str,
        op: ReduceOp,
        prescale: float,
        postscale: float,
        compression: type[Compressor],
        communicator: int,
    ) -> None:
        self.parameter = parameter
        self.communicator = communicator
        like_gradient, _ = compression.compress(torch.empty_like(parameter, requires_grad=False))
        self.spec: TensorSpec = allreduce_spec(like_gradient, name, op, prescale, postscale, communicator)
        self._dtype = like_gradient.dtype
        # Set by the optimizer, for all slots at once.
        self.registration = 0
        # 0: none in flight.
        self.operation = 0
        self._job = job
        self._compression = compression
        # A list, so that its references can be counted; empty at first.
        self._arena: list[torch.Tensor] = []
        self._arena_full = False
        # Of the operation in flight.
        self._source: torch.Tensor | None = None
        self._result: torch.Tensor | None = None
        self._context: Any = None
        # ``p.grad`` as it was submitted.
        self._gradient: torch.Tensor | None = None
        self._version = 0
        # None: the result is written there.
        self._first_bytes: bytes | None = None

    def submit(self) -> None:
        """Hands ``p.grad`` to ringd; zeros if there is none, because another rank may have computed
        it."""
        if self.parameter.grad is None:
            self.parameter.grad = torch.zeros_like(self.parameter)
        gradient: torch.Tensor = self.parameter.grad
        compressed, context = self._compression.compress(gradient.detach())
        if compressed.dtype != self._dtype or compressed.shape != self.spec.shape or compressed.is_sparse:
            self._describe_anew(compressed)
        source = dense(compressed)
        result = self._place_for(source)
        submit = self._job.context.submit
        try:
            self.operation = submit(self.registration, source.data_ptr(), result.data_ptr())
        except NotFoundError:
            # Many others have been described under this name since, and it was given back.
            self.registration = self._job.registration(self.spec)
            self.operation = submit(self.registration, source.data_ptr(), result.data_ptr())
        self._source, self._result, self._context = source, result, context
        self._gradient, self._version = gradient, gradient._version
        reduced_in_place = result.data_ptr() == gradient.data_ptr()
        self._first_bytes = None if reduced_in_place else _first_bytes(gradient)
        # An optimizer may go while other ranks still read its gradients.
        self._job.in_flight.add(self)

    def has_submitted(self, gradient: torch.Tensor | None) -> bool:
        """Whether the operation in flight is that of this very tensor."""
        return gradient is not None and gradient is self._gradient

    def was_changed(self) -> bool:
        """Whether the program has replaced or changed ``p.grad`` since it was submitted.

        A change through ``.data`` that leaves the first bytes alone is not seen, nor any such
        change of a gradient that is reduced where it is.
        """
        submitted = self._gradient
        if submitted is None or self.parameter.grad is not submitted:
            return True
        # A view counts the changes of all that lies in the same memory.
        if submitted._version != self._version and not submitted._is_view():
            return True
        return self._first_bytes is not None and self._first_bytes != _first_bytes(submitted)

    def discard(self) -> None:
        """Waits for the operation and leaves ``p.grad`` as it is."""
        if is_current(self._job):
            self._wait()
        self.forget()

    def _wait(self) -> None:
        try:
            self._job.context.wait(self.operation)
        except RingdError:
            self.forget()
            raise

    def finish(self) -> None:
        """Waits for the operation; afterwards ``p.grad`` is the reduced gradient."""
        self._wait()
        result, context = self._result, self._context
        self.forget()
        assert result is not None
        parameter = self.parameter
        gradient = parameter.grad
        reduced = self._compression.decompress(result, context)
        if reduced is not result and gradient is not None:
            gradient.detach().copy_(reduced)
        elif gradient is None or gradient.data_ptr() != reduced.data_ptr() or not gradient.is_contiguous():
            parameter.grad = reduced

    def forget(self) -> None:
        """Gives up an operation that has ended."""
        self.operation = 0
        self._source = self._result = self._context = self._gradient = self._first_bytes = None
        self._job.in_flight.discard(self)

    def _describe_anew(self, compressed: torch.Tensor) -> None:
        """For a parameter whose type or shape the program has changed."""
        spec = self.spec
        self.spec = allreduce_spec(
            compressed, spec.name, ReduceOp(spec.op), spec.prescale, spec.postscale, spec.communicator
        )
        self.registration = self._job.registration(self.spec)
        self._dtype = compressed.dtype
        self._arena.clear()

    def _place_for(self, source: torch.Tensor) -> torch.Tensor:
        """Where the result of `source` goes: the arena, unless that is full."""
        if self._arena:
            arena = self._arena[0]
            if arena.data_ptr() == source.data_ptr():
                return arena
            del arena
            if _uses(self._arena) == _UNSHARED:
                return self._arena[0]
            self._arena.clear()
        if not self._arena_full and source.numel() > 0:
            try:
                self._arena.append(allocate(self._job, source.shape, source.dtype))
                return self._arena[0]
            except RingdError:
                self._arena_full = True
        return source
