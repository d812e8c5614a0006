"""Collective communication for training, through the ringd daemon of this node.

PyTorch programs use ``ringd.torch``, which has Horovod's functions: see ``help("ringd.torch")``.

    import ringd.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

This module is for programs that have memory of another kind. It lies directly over the C interface:

    context = ringd.Context()                               # joins the job; the launcher says which
    (number,) = context.register([ringd.TensorSpec("gradient", shape=(1000,))])
    address = context.arena_alloc(4000)                     # memory shared with ringd
    context.wait(context.submit(number, address, address))  # now it holds the sum over all ranks

Arrays on a GPU: ``Context.device_open`` and ``Context.device_all_reduce``.

    Context          a place in a job, and what can be done there
    TensorSpec       a tensor, as all ranks describe it
    Place            where a rank is
    DataType, ReduceOp, CollectiveKind, Memory
                     the numbers in a TensorSpec; see help("ringd.types")

Every failure is a ``RingdError``; see help("ringd.errors"):

    JobFailedError           the job is over; the message is the cause, the same on every rank
    InvalidArgumentError     wrong input, or ranks that disagree on a tensor; the job goes on
    FailedPreconditionError  something has to be put right first; the message says what
    UnavailableError         the node's ringd can't be reached, or has died
    NotFoundError            no ringd at the socket; no such operation or registration
    DeadlineExceededError    a wait, or the start of a job, took too long
    AlreadyExistsError       another process holds this rank; or there is such a communicator
    ResourceExhaustedError   the arena or the ring is full; the message names the setting
    PermissionDeniedError    this user may not attach to ringd
    UnauthenticatedError     the job's secret is wrong
    CancelledError           the job was left while the operation was in flight
    InternalError            a fault of ringd itself
"""

from ringd import _ringd
from ringd.context import Context
from ringd.errors import ERROR_TYPES as ERROR_TYPES
from ringd.errors import AlreadyExistsError as AlreadyExistsError
from ringd.errors import CancelledError as CancelledError
from ringd.errors import DeadlineExceededError as DeadlineExceededError
from ringd.errors import FailedPreconditionError as FailedPreconditionError
from ringd.errors import InternalError as InternalError
from ringd.errors import InvalidArgumentError as InvalidArgumentError
from ringd.errors import JobFailedError as JobFailedError
from ringd.errors import NotFoundError as NotFoundError
from ringd.errors import PermissionDeniedError as PermissionDeniedError
from ringd.errors import ResourceExhaustedError as ResourceExhaustedError
from ringd.errors import RingdError as RingdError
from ringd.errors import UnauthenticatedError as UnauthenticatedError
from ringd.errors import UnavailableError as UnavailableError
from ringd.types import CollectiveKind as CollectiveKind
from ringd.types import DataType as DataType
from ringd.types import Memory as Memory
from ringd.types import Place, TensorSpec
from ringd.types import ReduceOp as ReduceOp

_ringd.set_error_types(ERROR_TYPES)

#: The release of this package and of the libringd in it.
__version__ = _ringd.version()

# What help(ringd) shows in full. It would add a hundred inherited lines for each error and
# enumeration; the text above lists those.
__all__ = ["Context", "Place", "TensorSpec", "__version__"]
