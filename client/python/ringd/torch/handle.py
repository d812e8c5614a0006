"""What a program holds of operations in flight, and what becomes of it when it holds it no more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from ringd.errors import InvalidArgumentError, RingdError
from ringd.torch.job import Job
from ringd.torch.uncompiled import uncompiled

# What synchronize() gives: a tensor, or a list of them.
Result = TypeVar("Result")


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
        self._submit(
            self._on_device,
            lambda: device.submit(registration, source, destination, self.communicator),
            (source, destination),
        )

    def submit(
        self, registration: int, source: torch.Tensor, destination: torch.Tensor, *, alone: bool = False
    ) -> None:
        """Adds an operation on tensors of the host. Both are dense. `alone`: it is the only one,
        and ``synchronize`` follows at once."""
        places = source.data_ptr(), destination.data_ptr()
        context = self._job.context
        submit = context.submit_awaited if alone else context.submit
        self._submit(self._operations, lambda: submit(registration, *places), (source, destination))

    def _submit(
        self, numbers: list[int], submit: Callable[[], int], tensors: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        # First kept: an interrupt may come between the submission and what is done with its number.
        self._kept += tensors
        try:
            numbers.append(submit())
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


def take_out_abandoned(job: Job) -> None:
    """Of abandoned handles those whose operations have ended, which gives their memory back."""
    for handle in list(job.abandoned):
        if not handle.poll():
            continue
        with contextlib.suppress(RingdError):
            handle.synchronize()
        with contextlib.suppress(ValueError):
            job.abandoned.remove(handle)  # another thread may have


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
