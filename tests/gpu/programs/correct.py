"""Every element type with every operator, of several sizes, packed and alone, scaled, and out of
place, and broadcast: what comes out has to be right to the last bit."""

from __future__ import annotations

import math
import os
import struct

import ringd
from device_trainer import DeviceTrainer
from element_types import FLOAT8, FLOATS, NOT_IN_NCCL, SIZES, combined, encode, pattern, repeat
from raw_tensor import RawTensor, warm_up
from ringd import CollectiveKind, DataType, ReduceOp
from trainer import run, say

# Elements; odd ones, so that what is packed behind is not aligned to more than an element.
COUNTS = (1, 5, 1000, 65_537)
ALONE_COUNT = 1001
LARGE_BYTES = 16 << 20
SLAB_BYTES = 64 << 20
PRESCALE, POSTSCALE = 2.0, 0.5


class Case:
    """One tensor and what has to come out of it."""

    def __init__(
        self,
        trainer: DeviceTrainer,
        data_type: DataType,
        op: ReduceOp,
        count: int,
        *,
        scaled: bool = False,
        apart: bool = False,
    ) -> None:
        rank, size = trainer.rank, trainer.size
        self.data_type, self.op = data_type, op
        values, result = pattern(data_type, op, rank), combined(data_type, op, size)
        if scaled:
            values, result = values[:7], result[:7]  # integers that wrap are clamped instead
        ways = ("scaled " if scaled else "") + ("apart " if apart else "")
        name = f"{ways}{data_type.name} {op.name} {count}"
        spec = ringd.TensorSpec(name, data_type=data_type, op=op, shape=(count,))
        if scaled:
            spec = spec._replace(prescale=PRESCALE, postscale=POSTSCALE)
        element = SIZES[data_type]
        self.expected = repeat(encode(data_type, result), element, count)
        self.tensor = RawTensor(trainer, spec, repeat(encode(data_type, values), element, count), apart=apart)

    def check(self) -> bool:
        return is_right(self.tensor, self.expected)


def is_right(tensor: RawTensor, expected: bytes) -> bool:
    """Reads the result; says where it is wrong."""
    got = tensor.read()
    if got == expected:
        return True
    at = next(i for i, pair in enumerate(zip(got, expected, strict=True)) if pair[0] != pair[1])
    say(
        "wrong",
        tensor=tensor.name,
        byte=at,
        got=got[at : at + 16].hex(),
        expected=expected[at : at + 16].hex(),
    )
    return False


def operators(data_type: DataType) -> list[ReduceOp]:
    return [op for op in ReduceOp if not (data_type == DataType.BOOL and op == ReduceOp.AVERAGE)]


def check_packed(trainer: DeviceTrainer, data_type: DataType) -> bool:
    """Many in flight at once, which ringd packs; the trainer's stream alone waits."""
    ops = operators(data_type)
    cases = [Case(trainer, data_type, op, count) for op in ops for count in COUNTS]
    cases += [Case(trainer, data_type, ReduceOp.SUM, count, scaled=True) for count in COUNTS]
    cases += [Case(trainer, data_type, op, ALONE_COUNT, apart=True) for op in ops]
    for case in cases:
        case.tensor.write()
    operations = [case.tensor.submit() for case in cases]
    for operation in operations:
        trainer.context.stream_wait(operation, trainer.stream)
    right = [case.check() for case in cases]
    trainer.context.wait_all(operations)
    for case in cases:
        case.tensor.free()
    return all(right)


def check_alone(trainer: DeviceTrainer, data_type: DataType) -> bool:
    """One after the other; the host waits."""
    right = []
    for op in operators(data_type):
        case = Case(trainer, data_type, op, ALONE_COUNT)
        case.tensor.write()
        trainer.context.wait(case.tensor.submit())
        right.append(case.check())
        case.tensor.free()
    return all(right)


def check_refused(trainer: DeviceTrainer, data_type: DataType) -> bool:
    """What NCCL does not reduce fails on all ranks, and nothing else does."""
    case = Case(trainer, data_type, ReduceOp.SUM, ALONE_COUNT)
    case.tensor.write()
    try:
        trainer.context.wait(case.tensor.submit())
    except ringd.InvalidArgumentError:
        return True
    finally:
        case.tensor.free()
    say("wrong", tensor=case.tensor.name, byte=0, got="no error", expected="InvalidArgumentError")
    return False


def check_broadcasts(trainer: DeviceTrainer, data_type: DataType) -> bool:
    """From the first and the last rank; the bytes are whatever they are."""
    element = SIZES[data_type]
    broadcasts = []
    for root in sorted({0, trainer.size - 1}):
        for count in COUNTS:
            spec = ringd.TensorSpec(
                f"{data_type.name} broadcast from {root} {count}",
                kind=CollectiveKind.BROADCAST,
                data_type=data_type,
                shape=(count,),
                root_rank=root,
            )
            own, expected = (
                repeat(bytes(range(rank, rank + 7)), element, count) for rank in (trainer.rank, root)
            )
            broadcasts.append((RawTensor(trainer, spec, own), expected))
    for tensor, _ in broadcasts:
        tensor.write()
    trainer.context.wait_all([tensor.submit() for tensor, _ in broadcasts])
    right = [is_right(tensor, expected) for tensor, expected in broadcasts]
    for tensor, _ in broadcasts:
        tensor.free()
    return all(right)


def check_large(trainer: DeviceTrainer) -> bool:
    case = Case(trainer, DataType.FLOAT32, ReduceOp.SUM, LARGE_BYTES // 4 + 1)
    case.tensor.write()
    operation = case.tensor.submit()
    trainer.context.stream_wait(operation, trainer.stream)
    right = case.check()
    trainer.context.wait(operation)
    case.tensor.free()
    return right


def look_at_nan(trainer: DeviceTrainer) -> dict[str, bool]:
    """Whether a NaN of one rank comes through, as it does in host memory. Decides nothing."""
    kept = {}
    for op in (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX):
        value = math.nan if trainer.rank == 0 else 1.0
        spec = ringd.TensorSpec(f"NaN {op.name}", op=op, shape=(4,))
        tensor = RawTensor(trainer, spec, struct.pack("<4f", *[value] * 4))
        tensor.write()
        trainer.context.wait(tensor.submit())
        kept[op.name] = math.isnan(struct.unpack("<4f", tensor.read())[0])
        tensor.free()
    return kept


def main() -> None:
    trainer = DeviceTrainer(slab_bytes=SLAB_BYTES)
    warm_up(trainer)
    reduces_float8 = os.environ["RINGD_TEST_FLOAT8"] == "1"
    right = True
    for data_type in DataType:
        if data_type in FLOAT8 and not reduces_float8:
            fine = check_refused(trainer, data_type)
            verdict = "broadcasts exact, all-reduces refused by NCCL"
        else:
            fine = check_packed(trainer, data_type) and check_alone(trainer, data_type)
            verdict = "all-reduces and broadcasts exact"
        if data_type in NOT_IN_NCCL:
            verdict = "broadcasts exact, all-reduces exact by the host path"
        fine = check_broadcasts(trainer, data_type) and fine
        say("type", name=data_type.name, verdict=verdict if fine else "wrong")
        right = right and fine
    right = check_large(trainer) and right
    say("checked", types=len(DataType), floats=len(FLOATS), nan_comes_through=look_at_nan(trainer))
    if not right:
        raise SystemExit(1)


run(main)
