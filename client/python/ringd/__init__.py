"""ringd: collective communication for training through the node's ringd daemon.

``import ringd.torch as hvd`` is what PyTorch programs use; this module is for what has tensors of another
kind, and lies directly over the C interface (``client/ringd.h``).
"""

from ringd import _ringd
from ringd.context import Context
from ringd.errors import (
    ERROR_TYPES,
    AlreadyExistsError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    JobFailedError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    RingdError,
    UnauthenticatedError,
    UnavailableError,
)
from ringd.types import CollectiveKind, DataType, Place, ReduceOp, TensorSpec

_ringd.set_error_types(ERROR_TYPES)

#: The release of this package and of the libringd in it.
__version__ = _ringd.version()

__all__ = [
    "AlreadyExistsError",
    "CancelledError",
    "CollectiveKind",
    "Context",
    "DataType",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "JobFailedError",
    "NotFoundError",
    "PermissionDeniedError",
    "Place",
    "ReduceOp",
    "ResourceExhaustedError",
    "RingdError",
    "TensorSpec",
    "UnauthenticatedError",
    "UnavailableError",
    "__version__",
]
