"""The words that ringd's processes use among each other; the numbers are those of ``ringd.h``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

#: Stands for every operation that has ended well: RINGD_DONE.
OPERATION_DONE = 2**64 - 1


class DataType(IntEnum):
    """The type of a tensor's elements."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    UINT64 = 6
    INT64 = 7
    FLOAT16 = 8
    BFLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    BOOL = 12
    FLOAT8_E4M3 = 13
    FLOAT8_E5M2 = 14


class ReduceOp(IntEnum):
    """How the ranks' tensors become one. What each means for each type stands in ringd.h, beside
    RINGD_SUM."""

    SUM = 0
    AVERAGE = 1
    MIN = 2
    MAX = 3
    PRODUCT = 4


class CollectiveKind(IntEnum):
    """What is done with a tensor."""

    ALLREDUCE = 0
    BROADCAST = 1
    BARRIER = 2


class Memory(IntEnum):
    """Where a tensor lies."""

    HOST = 0
    #: The GPU that the context has opened.
    DEVICE = 1


class TensorSpec(NamedTuple):
    """One tensor as all ranks describe it: see ``ringd_tensor`` in ``ringd.h``."""

    name: str
    kind: int = CollectiveKind.ALLREDUCE
    data_type: int = DataType.FLOAT32
    op: int = ReduceOp.SUM
    shape: tuple[int, ...] = ()
    prescale: float = 1.0
    postscale: float = 1.0
    root_rank: int = 0
    communicator: int = 0
    memory: int = Memory.HOST


class CommunicatorPlace(NamedTuple):
    """Where a rank is in a communicator: see ``ringd_communicator_place`` in ``ringd.h``."""

    rank: int
    size: int
    node_count: int
    node_index: int


class Place(NamedTuple):
    """Where a rank is: see ``ringd_place`` in ``ringd.h``."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    node_count: int
    node_index: int
    homogeneous: bool
    generation: int
    node_name: str
    daemon_version: str


# What Context.register takes: TensorSpecs, or plain tuples in their order.
TensorSpecs = Sequence[
    TensorSpec
    | tuple[str, int, int, int, tuple[int, ...], float, float, int]
    | tuple[str, int, int, int, tuple[int, ...], float, float, int, int]
    | tuple[str, int, int, int, tuple[int, ...], float, float, int, int, int]
]
