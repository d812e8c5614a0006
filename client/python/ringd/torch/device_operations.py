"""Tensors on a GPU: which of their operations are carried out there, and how those end."""

from __future__ import annotations

import os
import re
import threading
import time
import warnings
from typing import NamedTuple

import torch

from ringd.context import Context
from ringd.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    RingdError,
)
from ringd.torch import cuda_streams
from ringd.types import Memory, TensorSpec

SLAB_VARIABLE = "RINGD_SLAB"
DEFAULT_SLAB_BYTES = 512 << 20

# How long a submission waits for others to end when the slab has no room.
_ROOM_PATIENCE_S = 30.0
_ROOM_PAUSE_S = 0.0002


class _Open(NamedTuple):
    """An operation that has not been taken out of the library, and what is kept as long."""

    communicator: int
    source: torch.Tensor
    destination: torch.Tensor


class DeviceOperations:
    """A job's operations on tensors of this rank's GPU.

    They have the order of streams, as those of PyTorch's own NCCL backend: an operation begins when
    the stream that is current at ``submit`` comes to it, and ``wait`` lets the current stream wait,
    not the host. So one that fails is often noticed later: whatever comes next here raises it.

    Thread safety: any thread may call anything; nothing waits under the lock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        # A signal's handler may call finish() amid what another method does under it.
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        # The GPU that has been opened; or why there is none, so that tensors go by the host.
        self._ordinal: int | None = None
        self._none_because: str | None = None
        self._told: set[str] = set()
        # Nobody has waited for these yet, and a stream waits for those; the oldest first.
        self._submitted: dict[int, _Open] = {}
        self._fetched: dict[int, _Open] = {}
        # Of operations that made room for others before anybody waited for them.
        self._outcomes: dict[int, RingdError | None] = {}

    def placed(self, spec: TensorSpec, tensor: torch.Tensor) -> TensorSpec:
        """The description with the memory where the operation on `tensor` is carried out. The same
        on all ranks, if they have equal GPUs and libraries. Opens the GPU."""
        if not cuda_streams.is_on_gpu(tensor):
            return spec
        if cuda_streams.is_capturing(tensor):
            raise FailedPreconditionError(
                f"{spec.name}: the stream is capturing a CUDA graph, and an operation over ranks can't be "
                "part of one: leave it out of the graph"
            )
        reason = self._host_because(tensor)
        if reason is None:
            return spec._replace(memory=Memory.DEVICE)
        if self._context.place.size > 1:
            self._tell(spec.name, reason)
        return spec

    def _host_because(self, tensor: torch.Tensor) -> str | None:
        if self._context.place.size == 1:
            return "this rank is alone"
        return self._open_for(tensor)

    def _open_for(self, tensor: torch.Tensor) -> str | None:
        ordinal = cuda_streams.ordinal(tensor)
        with self._opening:
            if self._none_because is not None:
                return self._none_because
            if self._ordinal is None:
                try:
                    self._context.device_open(ordinal, slab_bytes(os.environ.get(SLAB_VARIABLE)))
                except ResourceExhaustedError as error:
                    raise ResourceExhaustedError(
                        f"{error}; {SLAB_VARIABLE} says how large the slab is"
                    ) from error
                except (FailedPreconditionError, NotFoundError) as error:
                    self._none_because = str(error)
                    return self._none_because
                self._ordinal = ordinal
        if ordinal != self._ordinal:
            raise InvalidArgumentError(
                f"the tensor is on GPU {ordinal}, and this rank has used GPU {self._ordinal}: a rank has "
                "one, torch.cuda.set_device(hvd.local_rank())"
            )
        return None

    def _tell(self, name: str, reason: str) -> None:
        """Once for each reason."""
        with self._lock:
            if reason in self._told:
                return
            self._told.add(reason)
        warnings.warn(
            f"'{name}' is on a GPU, and goes by a copy to host memory and back: {reason}. What else goes so "
            "for this reason is not told",
            stacklevel=6,
        )

    def submit(
        self, registration: int, source: torch.Tensor, destination: torch.Tensor, communicator: int
    ) -> int:
        """Begins an operation when the current stream comes to it. Both tensors are dense, and are
        kept until it has ended.

        Where the slab has no room, waits for other operations to end. ``ResourceExhaustedError``:
        none does.
        """
        self._take_out_ended()
        cuda_streams.keep_for_current(source)
        deadline = time.monotonic() + _ROOM_PATIENCE_S
        while True:
            try:
                operation = self._context.submit_on_stream(
                    registration,
                    cuda_streams.address(source),
                    cuda_streams.address(destination),
                    cuda_streams.current(source),
                )
                break
            except ResourceExhaustedError as error:
                if time.monotonic() >= deadline or not self._make_room():
                    if "slab_bytes" not in str(error):
                        raise
                    raise ResourceExhaustedError(
                        f"{error}; {SLAB_VARIABLE} says how large the slab is, which holds what is in "
                        "flight at once"
                    ) from error
        with self._lock:
            self._submitted[operation] = _Open(communicator, source, destination)
        return operation

    def wait(self, operation: int) -> None:
        """Lets the current stream wait for the operation; raises what is known to be wrong with
        it."""
        with self._lock:
            found = self._submitted.get(operation)
        if found is None:
            self._raise_outcome(operation)
            return
        try:
            self._context.stream_wait(operation, cuda_streams.current(found.destination))
        except RingdError:
            self._take_out(operation)
            self._raise_outcome(operation)
            raise
        cuda_streams.keep_for_current(found.destination)
        with self._lock:
            self._submitted.pop(operation, None)
            self._fetched[operation] = found
        if self._has_ended(operation):
            self._take_out(operation)
            self._raise_outcome(operation)

    def has_ended(self, operation: int) -> bool:
        with self._lock:
            if operation not in self._submitted:
                return True
        return self._has_ended(operation)

    def discard(self, operation: int) -> None:
        """Blocks until the operation has ended; raises how, if it has failed."""
        self._take_out(operation)
        self._raise_outcome(operation)

    def finish(self, communicator: int | None = None) -> None:
        """Blocks until all operations for which streams wait have ended, on this communicator or on
        all; raises the first failure after that."""
        with self._lock:
            fetched = [
                operation
                for operation, found in self._fetched.items()
                if communicator in (None, found.communicator)
            ]
        for operation in fetched:
            self._take_out(operation)
        self._raise_outcome(*fetched)

    def _take_out_ended(self) -> None:
        """Takes operations for which streams wait out of the library when they have ended, which
        gives their places in the slab back. Raises a failure."""
        while True:
            with self._lock:
                oldest = next(iter(self._fetched), None)
            if oldest is None or not self._has_ended(oldest):
                return
            self._take_out(oldest)
            self._raise_outcome(oldest)

    def _make_room(self) -> bool:
        """Takes out whatever has ended, or sleeps a moment. False: there is nothing to wait for."""
        with self._lock:
            fetched = list(self._fetched)
            operations = [*fetched, *self._submitted]
        ended = [operation for operation in operations if self._has_ended(operation)]
        for operation in ended:
            self._take_out(operation)
        self._raise_outcome(*(operation for operation in ended if operation in fetched))
        if not ended:
            time.sleep(_ROOM_PAUSE_S)
        return bool(operations)

    def _has_ended(self, operation: int) -> bool:
        try:
            return self._context.test(operation)
        except NotFoundError:
            return True  # another thread has taken it out

    def _take_out(self, operation: int) -> None:
        """Blocks until it has ended, and notes how."""
        outcome: RingdError | None = None
        try:
            self._context.wait(operation)
        except NotFoundError as error:
            # Another thread has, or a wait that was interrupted as it ended.
            outcome = error
        except RingdError as error:
            outcome = error
        with self._lock:
            is_awaited = self._submitted.pop(operation, None) is not None
            self._fetched.pop(operation, None)
            if not isinstance(outcome, NotFoundError):
                self._outcomes[operation] = outcome
            elif is_awaited:
                self._outcomes.setdefault(operation, outcome)

    def _raise_outcome(self, *operations: int) -> None:
        """Of operations that have been taken out: forgets how they have ended, and raises the first
        failure."""
        with self._lock:
            outcomes = [self._outcomes.pop(operation, None) for operation in operations]
        for outcome in outcomes:
            if outcome is not None:
                raise outcome


def slab_bytes(setting: str | None) -> int:
    """What ``RINGD_SLAB`` says: bytes, or with KiB, MiB or GiB behind them."""
    if not setting:
        return DEFAULT_SLAB_BYTES
    found = re.fullmatch(r"\s*(\d+)\s*(KiB|MiB|GiB|)\s*", setting)
    if found is None or int(found[1]) == 0:
        raise InvalidArgumentError(f"{SLAB_VARIABLE} is '{setting}'; a size such as 512MiB is meant")
    return int(found[1]) << {"": 0, "KiB": 10, "MiB": 20, "GiB": 30}[found[2]]
