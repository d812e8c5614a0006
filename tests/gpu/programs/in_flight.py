"""A collective stays in flight: one rank's stream is held before it gives its tensor, so the GPUs
of the others wait in NCCL. Then somebody dies. Who is left hears it, and all streams go on.

HELD_RANK: the rank whose stream is held.
"""

from __future__ import annotations

import os
import struct

import ringd
from device_trainer import DeviceTrainer
from raw_tensor import RawTensor
from trainer import run, say, say_error

COUNT = 1 << 20


def main() -> None:
    trainer = DeviceTrainer(slab_bytes=COUNT * 8)
    context, stream = trainer.context, trainer.stream
    spec = ringd.TensorSpec("gradient", shape=(COUNT,))
    tensor = RawTensor(trainer, spec, struct.pack("<f", 1.0) * COUNT)
    tensor.write()
    context.wait(tensor.submit())
    tensor.write()
    let_go = None
    if trainer.rank == int(os.environ["HELD_RANK"]):
        let_go = trainer.driver.hold_up(stream)
    operation = tensor.submit()
    context.stream_wait(operation, stream)
    say("in flight")
    try:
        context.wait(operation)
    except ringd.RingdError as error:
        say_error(error, "lost")
    if let_go is not None:
        let_go()
    # What was behind the wait runs: nothing holds the stream any more.
    trainer.driver.synchronize(stream)
    say("released")


run(main)
