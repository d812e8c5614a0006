"""What the host path (device_launch = "host") makes of tensors on GPUs: all types and operators,
large tensors, memory of the trainer's own. On emulated GPUs."""

from __future__ import annotations

import pytest

from tests.integration.any_device_memory_test import SUMS as SUMS_ANYWHERE
from tests.integration.cluster import Cluster
from tests.integration.emulated_gpus import start_on_gpus

LAYOUTS = pytest.mark.parametrize("layout", [[2], [1, 1], [2, 1]], ids=str)


@LAYOUTS
def test_tensors_of_the_trainers_own_are_reduced(cluster: Cluster, layout: list[int]) -> None:
    cluster.settings["device_launch"] = "host"
    start_on_gpus(cluster, SUMS_ANYWHERE, layout).expect_success()


ALL_TYPES = """
    import struct

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer()
        context, size = trainer.context, trainer.size
        DataType = ringd.DataType
        integers = {
            DataType.UINT8: "B", DataType.INT8: "b", DataType.UINT16: "H", DataType.INT16: "h",
            DataType.UINT32: "I", DataType.INT32: "i", DataType.UINT64: "Q", DataType.INT64: "q",
            DataType.FLOAT32: "f", DataType.FLOAT64: "d",
        }
        for data_type, code in integers.items():
            for op, expected in (
                (ringd.ReduceOp.SUM, 3 * size),
                (ringd.ReduceOp.AVERAGE, 3),
                (ringd.ReduceOp.MIN, 3),
                (ringd.ReduceOp.MAX, 3),
                (ringd.ReduceOp.PRODUCT, 3**size),
            ):
                tensor = trainer.tensor(f"{data_type} {op}", [3] * 77, code, data_type=data_type, op=op)
                context.wait(tensor.all_reduce())
                assert tensor.read() == [expected] * 77, (data_type, op, tensor.read()[:3])
        # 3.0 and its sums, as bits.
        narrow = {
            DataType.FLOAT16: (lambda v: struct.unpack("H", struct.pack("e", v))[0], "H"),
            DataType.BFLOAT16: (lambda v: struct.unpack("I", struct.pack("f", v))[0] >> 16, "H"),
        }
        for data_type, (bits, code) in narrow.items():
            tensor = trainer.tensor(str(data_type), [bits(3.0)] * 33, code, data_type=data_type)
            context.wait(tensor.all_reduce())
            assert tensor.read() == [bits(3.0 * size)] * 33, data_type
        # 1.0 of the two types of 8 bits.
        for data_type, one, two in (
            (DataType.FLOAT8_E4M3, 0x38, 0x40), (DataType.FLOAT8_E5M2, 0x3C, 0x40)
        ):
            tensor = trainer.tensor(str(data_type), [one] * 9, "B", data_type=data_type)
            context.wait(tensor.all_reduce())
            assert size != 2 or tensor.read() == [two] * 9, data_type


    run(main)
"""


@pytest.mark.parametrize("layout", [[2], [1, 1]], ids=str)
def test_all_types_and_operators(cluster: Cluster, layout: list[int]) -> None:
    cluster.settings["device_launch"] = "host"
    start_on_gpus(cluster, ALL_TYPES, layout).expect_success()


LARGE = """
    import array

    import ringd
    from device_trainer import DeviceTrainer
    from trainer import run


    def main():
        trainer = DeviceTrainer(slab_bytes=64 << 20)
        context, rank, size = trainer.context, trainer.rank, trainer.size
        # In pieces over several nodes; each has other values.
        count = 3_000_001
        pattern = [float(k % 1009) for k in range(count)]
        tensors = [
            trainer.tensor(f"large {i}", [value * (rank + 1) + i for value in pattern]) for i in range(2)
        ]
        other_stream = trainer.driver.new_stream()
        total = size * (size + 1) // 2
        for step in range(3):
            operations = [tensor.all_reduce() for tensor in tensors]
            stream = trainer.stream if step == 0 else other_stream
            if step < 2:
                for operation in operations:
                    context.stream_wait(operation, stream)
            else:
                context.wait_all(operations)
            for i, tensor in enumerate(tensors):
                assert tensor.read(stream) == [value * total + size * i for value in pattern], (step, i)
            if step < 2:
                context.wait_all(operations)
        (number,) = context.register(
            [
                ringd.TensorSpec(
                    "given",
                    shape=(count,),
                    kind=ringd.CollectiveKind.BROADCAST,
                    root_rank=size - 1,
                    memory=ringd.Memory.DEVICE,
                )
            ]
        )
        address = tensors[0].address
        trainer.driver.write(address, array.array("f", [v + rank for v in pattern]), trainer.stream)
        operation = context.submit_on_stream(number, address, address, trainer.stream)
        context.stream_wait(operation, trainer.stream)
        assert tensors[0].read() == [value + size - 1 for value in pattern]
        context.wait(operation)


    run(main)
"""


@LAYOUTS
def test_large_tensors(cluster: Cluster, layout: list[int]) -> None:
    cluster.settings["device_launch"] = "host"
    start_on_gpus(cluster, LARGE, layout).expect_success()
