"""Where one parameter's gradient is reduced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ringd import _ringd
from ringd.errors import FailedPreconditionError, NotFoundError, RingdError
from ringd.torch import cuda_streams, gradient_messages
from ringd.torch.arena import allocate
from ringd.torch.compression import Compressor, NoneCompressor
from ringd.torch.job import Communicator, Job, is_current
from ringd.torch.operations import allreduce_spec, dense, layout_of
from ringd.types import Memory, ReduceOp, TensorSpec

_storage_uses: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)

_ringd.set_torch(torch.Tensor, torch.strided, _storage_uses)


class GradientSlot(_ringd.GradientHook):
    """One parameter's way through the reductions, and its hook in the backward pass.

    The reduced gradient lies in the arena and becomes ``p.grad``, unless that is of another order
    of memory than the arena's, or a part of a larger memory: then it is copied into what is there,
    because kernels of optimizers, or the program, count on that. While it stays in the arena
    (``set_to_none=False``, or several backward passes) gradients are accumulated where they are
    reduced, and nothing is copied. A gradient from elsewhere, as autograd makes after
    ``set_to_none=True``, is submitted from where it is, and must stay as it is until the result is
    there. A tensor that the program has kept from an earlier step is never overwritten: the slot
    then takes new memory.

    Where the arena has no room for that, and on a GPU, the gradient is reduced in its own memory
    (on the host through copies, if there is a block for these). Not where that is another one's,
    too: autograd may give several parameters one memory, such as those whose sum is used.

    Thread safety: one thread at a time, that of the parameter's backward pass or of
        ``synchronize``.
    """

    __slots__ = (
        "__weakref__",
        "_arena_full",
        "_compression",
        "_copies_back",
        "_dtype",
        "_interrupted",
        "_job",
        "_on_gpu",
        "_restore",
        "registration",
        "spec",
    )

    spec: TensorSpec

    def __init__(
        self,
        parameter: torch.Tensor,
        slow: Callable[[torch.Tensor], None],
        pending: dict[GradientSlot, None],
        passes_per_step: int,
        compression: type[Compressor],
    ) -> None:
        """`slow`: submits the gradients that the hook itself can't. `pending`: gets the slots whose
        operations are in flight."""
        super().__init__(parameter, slow, pending, passes_per_step)
        self._compression = compression
        self._job: Job | None = None
        self.registration = 0
        self._arena_full = False
        # While these were submitted: nobody knows whether they were.
        self._interrupted: tuple[torch.Tensor, ...] | None = None
        # Of the operation in flight: what decompression needs, and whether the result is copied
        # into ``p.grad``.
        self._restore: Any = None
        self._copies_back = False

    def describe(
        self,
        job: Job,
        communicator: Communicator,
        name: str,
        op: ReduceOp,
        prescale: float,
        postscale: float,
    ) -> None:
        """For the operations of this job, until the next call. The registration is the caller's to
        set."""
        # A compressor of the program's own may keep what it sees.
        make = torch.empty_like if self._uncompressed() else torch.zeros_like
        like_gradient, _ = self._compression.compress(_like_gradient(self.parameter, make))
        spec = allreduce_spec(like_gradient, name, op, prescale, postscale, communicator.number)
        self.spec = job.device.placed(spec, like_gradient)
        self._dtype = like_gradient.dtype
        self._on_gpu = cuda_streams.is_on_gpu(like_gradient)
        self._job = job
        self._arena_full = False
        self._interrupted = None
        self.enter(communicator.number, job.in_flight)

    def submit(self, *, accumulated: bool = False) -> None:
        """Hands ``p.grad`` to ringd; zeros if there is none, because another rank may have computed
        it. `accumulated`: a backward pass has just done that."""
        job = self._job
        assert job is not None
        if self._interrupted is not None:
            raise FailedPreconditionError(gradient_messages.interrupted(self.spec.name))
        parameter = self.parameter
        if parameter.grad is None:
            parameter.grad = _like_gradient(parameter, torch.zeros_like)
        gradient: torch.Tensor = parameter.grad
        fresh = accumulated and gradient._version == 0
        shared = fresh and _shares_memory(gradient)
        compressed, self._restore = self._compression.compress(gradient.detach())
        on_gpu = cuda_streams.is_on_gpu(gradient)
        if (
            (compressed.dtype, on_gpu) != (self._dtype, self._on_gpu)
            or layout_of(compressed)[1] != self.spec.shape
            or compressed.is_sparse
        ):
            self._describe_anew(compressed, on_gpu)
        source = dense(compressed)
        stays = _stays_where_it_is(gradient, fresh=fresh)
        if not on_gpu:
            self._find_arena(source)
        elif self.spec.memory == Memory.HOST:
            source = cuda_streams.copy_to_host(source)
        if self.arena is not None:
            result = self.arena
        elif shared and source.data_ptr() == gradient.data_ptr():
            result = torch.empty_like(source)
        else:
            result = source
        self._copies_back = stays and result.data_ptr() != gradient.data_ptr()
        try:
            operation = self._begin(job, source, result)
            # An optimizer may go while other ranks still read its gradients: this keeps them.
            self.note(operation, source, result, gradient, not on_gpu)
        except BaseException as error:
            if not isinstance(error, Exception) and self.operation == 0:
                # ringd may be at them.
                self._interrupted = (source, result, gradient)
                self.set_arena(self.arena)  # disarms: the hook asks here again
            raise
        self.passes_left = 0
        if not stays and self.arena is not None and self._uncompressed() and job.context.raw is not None:
            self.arm(job.context.raw, self.registration)

    def _begin(self, job: Job, source: torch.Tensor, result: torch.Tensor) -> int:
        try:
            return self._begin_registered(job, source, result)
        except NotFoundError:
            # Many others have been described under this name since, and it was given back.
            self.registration = job.registration(self.spec)
            return self._begin_registered(job, source, result)

    def _begin_registered(self, job: Job, source: torch.Tensor, result: torch.Tensor) -> int:
        if self.on_device:
            return job.device.submit(self.registration, source, result, self.communicator)
        return job.context.submit(self.registration, source.data_ptr(), result.data_ptr())

    @property
    def on_device(self) -> bool:
        """Whether the gradient is reduced on a GPU: then streams wait for it, and not the host."""
        return self.spec.memory == Memory.DEVICE

    def has_submitted(self, gradient: torch.Tensor | None) -> bool:
        """Whether the operation in flight is that of this very tensor."""
        return gradient is not None and gradient is self.gradient

    def leave(self) -> None:
        """Leaves what is in flight to the job."""
        assert self._job is not None
        self._job.left.append(self)

    def has_ended(self) -> bool:
        """Whether ``discard`` would return at once, in the current job."""
        assert self._job is not None
        job = self._job
        try:
            return (job.device.has_ended if self.on_device else job.context.test)(self.operation)
        except RingdError:
            return True  # discard says what is wrong

    def discard(self) -> None:
        """Waits for the operation and leaves ``p.grad`` as it is."""
        assert self._job is not None
        self._copies_back = False
        if is_current(self._job):
            try:
                if self.on_device:
                    self._job.device.discard(self.operation)
                else:
                    self._job.context.wait(self.operation)
            except NotFoundError:
                pass  # an interrupt came when it had ended
            except RingdError:
                self.forget()
                raise
        self.forget()

    def finish(self) -> None:
        """The operation has ended well, or the current stream waits for it: ``p.grad`` becomes the
        reduced gradient."""
        result, gradient = self.result, self.parameter.grad
        assert result is not None
        if cuda_streams.is_on_gpu(self.parameter) and not self.on_device:
            reduced = result.to(self.parameter.device, copy=True)
        else:
            reduced = result
        if not self._uncompressed():
            reduced = self._compression.decompress(reduced, self._restore)
        if reduced is result and not self._copies_back:
            self.take()
            return
        if gradient is None:
            self.parameter.grad = _like_gradient(self.parameter, torch.empty_like).copy_(reduced)
        else:
            gradient.detach().copy_(reduced)
        # Last: an interrupt before leaves all that is needed to do it again.
        self._copies_back = False
        self.forget()

    def _uncompressed(self) -> bool:
        return self._compression is NoneCompressor

    def _describe_anew(self, compressed: torch.Tensor, on_gpu: bool) -> None:
        """For a parameter whose type, shape or device the program has changed."""
        assert self._job is not None
        spec = self.spec
        described = allreduce_spec(
            compressed, spec.name, ReduceOp(spec.op), spec.prescale, spec.postscale, spec.communicator
        )
        self.spec = self._job.device.placed(described, compressed)
        self.registration = self._job.registration(self.spec)
        self._dtype = compressed.dtype
        self._on_gpu = on_gpu
        self.set_arena(None)

    def _find_arena(self, source: torch.Tensor) -> None:
        """Sees to it that the result of `source` has its place there, unless the arena is full."""
        assert self._job is not None
        if self.arena is not None:
            # Elsewhere since share_memory(), which has also given back what was here.
            stays = self.arena.data_ptr() == self.arena_address
            if stays and (source.data_ptr() == self.arena_address or self.arena_is_free()):
                return
            self.set_arena(None)
        if not self._arena_full and source.numel() > 0:
            try:
                self.set_arena(allocate(self._job, source.shape, source.dtype))
            except RingdError:
                self._arena_full = True


def describe_all(
    names: dict[GradientSlot, str],
    job: Job,
    communicator: Communicator,
    op: ReduceOp,
    prescale: float,
    postscale: float,
) -> None:
    """`GradientSlot.describe`, with their registrations: one call to ringd."""
    if not names:
        return
    for slot, name in names.items():
        slot.describe(job, communicator, name, op, prescale, postscale)
    registrations = job.register([slot.spec for slot in names], keep=True)
    for slot, registration in zip(names, registrations, strict=True):
        slot.registration = registration


def _like_gradient(parameter: torch.Tensor, make: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Of the type that the parameter's gradient has, which may be another one (``grad_dtype``)."""
    dtype = getattr(parameter, "grad_dtype", None) or parameter.dtype
    return make(parameter, dtype=dtype, requires_grad=False)


def _shares_memory(gradient: torch.Tensor) -> bool:
    """Whether other tensors are in its memory: it is unknown where PyTorch does not tell."""
    if gradient.layout != torch.strided or _storage_uses is None:
        return False
    return _uses(gradient) > _uses_alone()


def _uses(tensor: torch.Tensor) -> int:
    assert _storage_uses is not None
    storage = tensor.untyped_storage()
    return _storage_uses(storage._cdata)


@functools.cache
def _uses_alone() -> int:
    """Some releases count the object that stands for the memory here."""
    return _uses(torch.empty(1))


def _stays_where_it_is(gradient: torch.Tensor, *, fresh: bool) -> bool:
    """Whether memory of the arena can't take its place: it is of another order (channels-last),
    which the kernels of fused optimizers expect to be the parameter's, or a part of a larger
    memory, which the program may use as a whole (one buffer for all gradients). Not where it is
    `fresh`: autograd has just made it. Or it has a graph (create_graph=True), which would be
    lost."""
    if gradient.requires_grad or not gradient.is_contiguous():
        return True
    return not fresh and (gradient._is_view() or gradient.untyped_storage().nbytes() > gradient.nbytes)
