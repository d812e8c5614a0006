"""One rank's object for all."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import torch

from ringd.errors import InvalidArgumentError
from ringd.torch.broadcast import broadcast_
from ringd.torch.job import current
from ringd.torch.operations import checked_root
from ringd.torch.process_set import ProcessSet, communicator_of, global_process_set
from ringd.torch.uncompiled import uncompiled

# Objects travel in tensors of whole powers of two, so that few sizes have to be registered; large
# ones in multiples of so much.
_LEAST_OBJECT_BYTES = 1024
_ROUNDED_OBJECT_BYTES = 64 << 20
_CANNOT_PICKLE = -1


def _pickled(obj: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        try:
            return pickle.dumps(obj)
        except Exception as error:
            raise InvalidArgumentError(
                f"broadcast_object: {error}. Functions and classes of the program itself need the "
                "package cloudpickle, on every node: pip install cloudpickle"
            ) from error
    return cloudpickle.dumps(obj)


@uncompiled
def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's `obj`, for all ranks. Other ranks' `obj` is ignored. Blocks until it is there.

    obj: what cloudpickle takes, as with Horovod: also functions, lambdas and classes of the program
        itself. Where the package cloudpickle is not installed: what pickle takes.
    root_rank: whose object it is; its number in the job, also with a process set. Default: 0.
    name: the same on all ranks. Default: unnamed calls are matched by their order.
    process_set: the ranks that take part, the root among them. Default: all.
    """
    job = current()
    root_rank = checked_root(root_rank)
    communicator = communicator_of(process_set, job)
    names = communicator.automatic_names
    base = names.next("broadcast_object") if name is None else f"broadcast_object.{name}"
    is_root = job.place.rank == root_rank
    content = b""
    failure: Exception | None = None
    if is_root:
        try:
            content = _pickled(obj)
        except Exception as error:  # the others are waiting: tell them before anything else
            failure = error
    # Objects are the host's, whatever the program's default device is.
    announced = torch.tensor(_CANNOT_PICKLE if failure is not None else len(content), device="cpu")
    broadcast_(announced, root_rank, f"{base}.size", process_set)
    size = int(announced)
    if failure is not None:
        raise failure
    if size == _CANNOT_PICKLE:
        raise InvalidArgumentError(f"{base}: rank {root_rank} could not pickle its object")
    if is_root and communicator.size == 1:
        return obj
    step = min(1 << max(size - 1, 0).bit_length(), _ROUNDED_OBJECT_BYTES)
    rounded = max(_LEAST_OBJECT_BYTES, -(-size // step) * step)
    buffer = torch.empty(rounded, dtype=torch.uint8, device="cpu")
    if is_root:
        buffer[:size] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    broadcast_(buffer, root_rank, f"{base}.content", process_set)
    return obj if is_root else pickle.loads((ctypes.c_char * size).from_address(buffer.data_ptr()))
