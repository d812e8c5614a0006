"""Tensors in the memory that this process shares with ringd: reduced where they are, without a
copy."""

from __future__ import annotations

import ctypes
import math
import operator
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import torch

from ringd.torch.job import Job, current


def empty(*shape: SupportsIndex | Iterable[SupportsIndex], dtype: torch.dtype | None = None) -> torch.Tensor:
    """As ``torch.empty``, in the arena: memory shared with ringd, from which tensors are reduced
    without a copy.

    shape: extents, one by one or as a sequence.
    dtype: Default: PyTorch's, ``torch.get_default_dtype()``.

    The memory is zeroed, and given back when the last tensor in it goes. After ``shutdown`` the
    tensor stays valid, but is ordinary memory to a later job.
    ``ResourceExhaustedError`` if the arena is full; the message names its limit and the setting.
    """
    extents: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], Iterable) else shape
    # NumPy's integers, too.
    return allocate(current(), tuple(map(operator.index, extents)), dtype or torch.get_default_dtype())


def allocate(job: Job, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    elements = math.prod(shape)
    if elements == 0:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    context = job.context
    size = elements * dtype.itemsize
    address = context.arena_alloc(size)
    memory = (ctypes.c_char * size).from_address(address)
    # PyTorch holds the buffer as long as a tensor uses it. The bound method holds the context, and
    # with it the mapping.
    give_back = weakref.finalize(memory, context.arena_free, address)
    give_back.atexit = False
    # Not a view: that would keep a second tensor on the memory, and look shared (see
    # gradient_slot.py).
    return torch.frombuffer(memory, dtype=dtype).resize_(tuple(shape))
