"""A collective stays in flight: one rank's stream is held before it gives its tensor, so the GPUs
of the others wait in NCCL. Then somebody dies. Who is left hears it, and all streams go on.

HELD_RANK: the rank whose stream is held.
"""

from __future__ import annotations

import ctypes
import os
import struct

import ringd
from device_trainer import DeviceTrainer, Driver
from raw_tensor import RawTensor
from trainer import run, say, say_error

COUNT = 1 << 20
WAIT_GEQ = 0  # CU_STREAM_WAIT_VALUE_GEQ


class Gate:
    """Holds a stream until `open` is called."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        address = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(8))
        self._address = ctypes.c_uint64(address.value)
        self._opener = driver.new_stream()
        self._write(0)
        driver.synchronize(self._opener)

    def hold(self, stream: int) -> None:
        self._driver.call(
            "cuStreamWaitValue64_v2", ctypes.c_void_p(stream), self._address, ctypes.c_uint64(1), WAIT_GEQ
        )

    def open(self) -> None:
        self._write(1)

    def _write(self, value: int) -> None:
        self._driver.call(
            "cuStreamWriteValue64_v2", ctypes.c_void_p(self._opener), self._address, ctypes.c_uint64(value), 0
        )


def main() -> None:
    trainer = DeviceTrainer(slab_bytes=COUNT * 8)
    context, stream = trainer.context, trainer.stream
    gate = Gate(trainer.driver)
    spec = ringd.TensorSpec("gradient", shape=(COUNT,))
    tensor = RawTensor(trainer, spec, struct.pack("<f", 1.0) * COUNT)
    tensor.write()
    context.wait(tensor.submit())
    tensor.write()
    if trainer.rank == int(os.environ["HELD_RANK"]):
        gate.hold(stream)
    operation = tensor.submit()
    context.stream_wait(operation, stream)
    say("in flight")
    try:
        context.wait(operation)
    except ringd.RingdError as error:
        say_error(error, "lost")
    gate.open()
    # What was behind the wait runs: nothing holds the stream any more.
    trainer.driver.synchronize(stream)
    say("released")


run(main)
