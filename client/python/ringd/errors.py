"""What ringd raises: one class for each kind of failure."""

from __future__ import annotations


class RingdError(RuntimeError):
    """Any failure of ringd. The message names rank, process, host and tensor where they matter."""

    #: The number of the failure in ``ringd.h``.
    status = 0


class CancelledError(RingdError):
    """The operation was in flight when its job was left, or was begun afterwards."""

    status = 1


class InvalidArgumentError(RingdError, ValueError):
    """Wrong input, or ranks that disagree on a tensor. The job goes on."""

    status = 3


class DeadlineExceededError(RingdError, TimeoutError):
    """A wait or the start of a job took too long."""

    status = 4


class NotFoundError(RingdError, LookupError):
    """No such operation or registration, or no ringd at the socket."""

    status = 5


class AlreadyExistsError(RingdError):
    """Another process holds this rank, or there is a communicator of this name, or a process set of
    these ranks."""

    status = 6


class PermissionDeniedError(RingdError, PermissionError):
    """This user may not attach to the node's ringd."""

    status = 7


class ResourceExhaustedError(RingdError, MemoryError):
    """The arena or the ring is full. The message names the limit and its setting."""

    status = 8


class FailedPreconditionError(RingdError):
    """Something has to be put right first: versions differ, ringd is draining, ``init`` was not
    called."""

    status = 9


class JobFailedError(RingdError):
    """The job has failed; the message is its root cause, the same on every rank."""

    status = 10


class InternalError(RingdError):
    """A fault of ringd itself."""

    status = 13


class UnavailableError(RingdError, ConnectionError):
    """The node's ringd can't be reached, or has died."""

    status = 14


class UnauthenticatedError(RingdError):
    """The job's secret is wrong."""

    status = 16


ERROR_TYPES: dict[int, type[RingdError]] = {
    error.status: error
    for error in (
        CancelledError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        JobFailedError,
        InternalError,
        UnavailableError,
        UnauthenticatedError,
    )
}
