"""One right sum: the GPU, and the ringds that are left, serve the next job."""

from __future__ import annotations

import struct

import ringd
from device_trainer import DeviceTrainer
from raw_tensor import RawTensor
from trainer import run

COUNT = 1000


def main() -> None:
    trainer = DeviceTrainer()
    tensor = RawTensor(
        trainer, ringd.TensorSpec("sum", shape=(COUNT,)), struct.pack("<f", trainer.rank + 1.0) * COUNT
    )
    tensor.write()
    trainer.context.wait(tensor.submit())
    total = trainer.size * (trainer.size + 1) / 2
    assert tensor.read() == struct.pack("<f", total) * COUNT


run(main)
