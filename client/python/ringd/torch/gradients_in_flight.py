"""Gradients whose operations are in flight: how they are waited for, or given up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from torch.utils.hooks import RemovableHandle

from ringd.errors import RingdError
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Job
from ringd.types import OPERATION_DONE

PATIENCE_S = 5.0


def wait(pending: dict[GradientSlot, None], job: Job | None, changed: set[GradientSlot]) -> RingdError | None:
    """Until no operation of the host is in flight, with one call; the first failure. `job`: that of
    the operations. `changed`: whose gradients the program has replaced, which stay as they are."""
    error = _fetch(pending, job, changed)
    slots = list(pending)
    if job is None or not slots:
        return error
    operations = [slot.operation for slot in slots]
    failure: RingdError | None = None
    try:
        try:
            job.context.wait_all(operations)
        except RingdError as caught:
            failure = caught
        rest = []
        for slot, operation in zip(slots, operations, strict=True):
            if slot in changed or not (failure is None or operation == OPERATION_DONE):
                rest.append(slot)
                continue
            slot.finish()
            del pending[slot]
        for slot in rest:
            slot.forget()
            del pending[slot]
    except BaseException:
        # An interrupt (Ctrl-C), or a gradient that can't be written: what is left can be waited for
        # again, and what has failed fails again.
        for slot, operation in zip(slots, operations, strict=True):
            if slot.operation == 0:
                pending.pop(slot, None)
            elif operation != 0:
                slot.operation = operation
        raise
    return error or failure


def _fetch(
    pending: dict[GradientSlot, None], job: Job | None, changed: set[GradientSlot]
) -> RingdError | None:
    """Lets the current stream wait for what is reduced on a GPU; the first failure that is
    known."""
    error: RingdError | None = None
    for slot in [slot for slot in pending if slot.on_device]:
        assert job is not None
        try:
            job.device.wait(slot.operation)
        except RingdError as failure:
            error = error or failure
            del pending[slot]
            slot.forget()
            continue
        if slot in changed:
            slot.forget()
        else:
            slot.finish()
        del pending[slot]
    return error


def leave(hooks: dict[int, RemovableHandle], pending: dict[GradientSlot, None]) -> None:
    """For an optimizer that goes. Any thread."""
    for hook in hooks.values():
        hook.remove()
    for slot in list(pending):
        slot.leave()
    pending.clear()


def end_left(job: Job) -> None:
    """Lets go of what optimizers have left in flight, with its memory, where it has ended."""
    for slot in list(job.left):
        if slot.has_ended():
            with contextlib.suppress(RingdError):
                slot.discard()
            with contextlib.suppress(ValueError):  # another thread has come first
                job.left.remove(slot)


def await_left(job: Job, communicator: int) -> None:
    """Lets go of what has been left in flight on a communicator, which ends soon: the other ranks
    have submitted it, too. Not of what still goes on after ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    end_left(job)
    while any(slot.communicator == communicator for slot in job.left) and time.monotonic() < deadline:
        time.sleep(0.002)
        end_left(job)


def discard(pending: dict[GradientSlot, None], slot: GradientSlot) -> None:
    """Ends a slot's operation without its result. The other ranks have theirs."""
    try:
        slot.discard()
    except RingdError:
        del pending[slot]
        raise
    # Not after an interrupt (Ctrl-C): then it is waited for again.
    del pending[slot]


def discard_all(pending: dict[GradientSlot, None], slots: Iterable[GradientSlot]) -> None:
    """The same of several; raises the first failure after that."""
    first_error: RingdError | None = None
    for slot in slots:
        try:
            discard(pending, slot)
        except RingdError as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
