"""Gradients whose operations are in flight: how they are waited for, or given up."""

from __future__ import annotations

import contextlib

from ringd.errors import RingdError
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Job
from ringd.types import OPERATION_DONE


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
        job.context.wait_all(operations)
    except RingdError as caught:
        failure = caught
    except BaseException:
        # An interrupt (Ctrl-C) leaves the slots here, to be waited for again.
        for slot, operation in zip(slots, operations, strict=True):
            slot.operation = operation
        raise
    left = dict(zip(slots, operations, strict=True))
    try:
        for slot in slots:
            del pending[slot]
            operation = left.pop(slot)
            if slot not in changed and (failure is None or operation == OPERATION_DONE):
                slot.finish()
            else:
                slot.forget()
    except BaseException:
        # What is left has ended, and its numbers are no operation's any more.
        for slot, operation in left.items():
            if operation == OPERATION_DONE:
                slot.operation = operation
            else:
                pending.pop(slot, None)
                slot.forget()
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
        del pending[slot]
        if slot in changed:
            slot.forget()
        else:
            slot.finish()
    return error


def leave(pending: dict[GradientSlot, None]) -> None:
    """For an optimizer that goes. Any thread."""
    for slot in list(pending):
        slot.leave()
    pending.clear()


def end_left(job: Job) -> None:
    """Lets go of what optimizers have left in flight, with its memory, where it has ended."""
    for slot in list(job.left):
        if slot.has_ended():
            job.left.remove(slot)
            with contextlib.suppress(RingdError):
                slot.discard()


def discard(pending: dict[GradientSlot, None], slot: GradientSlot) -> None:
    """Ends a slot's operation without its result. The other ranks have theirs."""
    try:
        slot.discard()
    except RingdError:
        del pending[slot]
        raise
    # Not after an interrupt (Ctrl-C): then it is waited for again.
    del pending[slot]
