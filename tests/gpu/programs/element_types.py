"""Elements of every type as bytes, without numpy: for values that each type holds exactly."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from ringd import DataType, ReduceOp

INTEGERS = {
    DataType.UINT8: (1, False),
    DataType.INT8: (1, True),
    DataType.UINT16: (2, False),
    DataType.INT16: (2, True),
    DataType.UINT32: (4, False),
    DataType.INT32: (4, True),
    DataType.UINT64: (8, False),
    DataType.INT64: (8, True),
    DataType.BOOL: (1, False),
}
# Bits of the exponent and of the mantissa.
FLOAT8 = {DataType.FLOAT8_E4M3: (4, 3), DataType.FLOAT8_E5M2: (5, 2)}
FLOATS = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64, *FLOAT8)
#: NCCL has no such elements: the host path reduces them.
NOT_IN_NCCL = (DataType.UINT16, DataType.INT16, DataType.BOOL)
SIZES = {
    **{data_type: size for data_type, (size, _) in INTEGERS.items()},
    DataType.FLOAT16: 2,
    DataType.BFLOAT16: 2,
    DataType.FLOAT32: 4,
    DataType.FLOAT64: 8,
    DataType.FLOAT8_E4M3: 1,
    DataType.FLOAT8_E5M2: 1,
}


def _float8_bits(value: float, exponent_bits: int, mantissa_bits: int) -> int:
    """Of a normal number, or 0."""
    if value == 0:
        return 0
    fraction, exponent = math.frexp(abs(value))  # 0.5 <= fraction < 1
    mantissa = (fraction * 2 - 1) * (1 << mantissa_bits)
    biased = exponent - 1 + (1 << (exponent_bits - 1)) - 1
    if mantissa != int(mantissa) or not 0 < biased < (1 << exponent_bits):
        raise ValueError(f"{value} is no exact number of this type")
    sign = 0x80 if value < 0 else 0
    return sign | biased << mantissa_bits | int(mantissa)


def encode(data_type: DataType, values: Sequence[float]) -> bytes:
    """The elements' bytes; integers wrap, booleans are 0 or 1."""
    if data_type == DataType.BOOL:
        return bytes(value != 0 for value in values)
    if data_type in INTEGERS:
        size, _ = INTEGERS[data_type]
        mask = (1 << 8 * size) - 1
        return b"".join((int(value) & mask).to_bytes(size, "little") for value in values)
    if data_type in FLOAT8:
        return bytes(_float8_bits(value, *FLOAT8[data_type]) for value in values)
    if data_type == DataType.BFLOAT16:
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    letter = {DataType.FLOAT16: "e", DataType.FLOAT32: "f", DataType.FLOAT64: "d"}[data_type]
    return struct.pack(f"<{len(values)}{letter}", *values)


def pattern(data_type: DataType, op: ReduceOp, rank: int) -> list[float]:
    """A rank's elements, over and over again: small enough that 4 ranks' results are exact in each
    type. Sums of integers also wrap."""
    if op == ReduceOp.PRODUCT:
        values: list[float] = [1, 2, 1, 1 + rank % 2, 2, 2 - rank % 2, 1]
    else:
        values = [(i * (rank + 2) + rank) % 3 for i in range(7)]
    is_signed = data_type in FLOATS or INTEGERS.get(data_type, (1, False))[1]
    if is_signed:
        values = [-value if i % 2 else value for i, value in enumerate(values)]
    if op == ReduceOp.SUM and data_type in INTEGERS and data_type != DataType.BOOL:
        size, signed = INTEGERS[data_type]
        values.append((1 << (8 * size - (1 if signed else 0))) - 1 - rank)
    return values


def combined(data_type: DataType, op: ReduceOp, ranks: int) -> list[float]:
    """The elements that come out, over and over again."""
    columns = zip(*(pattern(data_type, op, rank) for rank in range(ranks)), strict=True)
    return [combine(data_type, op, column) for column in columns]


def combine(data_type: DataType, op: ReduceOp, column: Sequence[float]) -> float:
    if op == ReduceOp.AVERAGE:
        total = sum(column)
        return total // len(column) if data_type in INTEGERS else total / len(column)
    if op == ReduceOp.PRODUCT:
        return math.prod(column)
    if op == ReduceOp.SUM:
        return sum(column)
    return min(column) if op == ReduceOp.MIN else max(column)


def repeat(elements: bytes, size: int, count: int) -> bytes:
    """`count` elements of `size` bytes, the given ones over and over again."""
    times = -(-count * size // len(elements))
    return (elements * times)[: count * size]
