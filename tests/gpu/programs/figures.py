"""How long all-reduces of float32 tensors on a GPU take, through ringd and through NCCL in the
trainer's own process, until the host sees that the trainer's stream has the result.

FIGURES_FOLDER: a folder that all ranks share. FIGURES: JSON, a list of [name, [elements, ...]].
FIGURES_SECONDS: how long each may take.
"""

from __future__ import annotations

import ctypes
import json
import os
from functools import partial
from pathlib import Path

import ringd
from device_trainer import DeviceTrainer
from own_nccl import OwnNccl
from raw_tensor import warm_up
from trainer import run
from turns import take_turns

ALIGNMENT = 256


class Tensors:
    """Those of one work, for ringd and, in memory of the trainer's own, for NCCL."""

    def __init__(self, trainer: DeviceTrainer, work: str, counts: list[int]) -> None:
        self._trainer, self._counts = trainer, counts
        context = trainer.context
        specs = [
            ringd.TensorSpec(f"{work} {i}", shape=(count,), memory=ringd.Memory.DEVICE)
            for i, count in enumerate(counts)
        ]
        self._numbers = context.register(specs)
        self._places = [context.device_alloc(4 * count) for count in counts]
        sizes = [-(-4 * count // ALIGNMENT) * ALIGNMENT for count in counts]
        block = ctypes.c_uint64()
        trainer.driver.call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(sum(sizes)))
        self._block = block.value
        self._own = [(block.value + sum(sizes[:i]), count) for i, count in enumerate(counts)]
        # Both begin as zeros, so no sum grows: the slab is made so.
        trainer.driver.call(
            "cuMemsetD32Async",
            ctypes.c_uint64(block.value), ctypes.c_uint(0), ctypes.c_size_t(sum(sizes) // 4),
            ctypes.c_void_p(trainer.stream),
        )  # fmt: skip
        trainer.driver.synchronize(trainer.stream)

    def through_ringd(self) -> None:
        context, stream = self._trainer.context, self._trainer.stream
        operations = [
            context.submit_on_stream(number, place, place, stream)
            for number, place in zip(self._numbers, self._places, strict=True)
        ]
        for operation in operations:
            context.stream_wait(operation, stream)
        self._trainer.driver.synchronize(stream)
        context.wait_all(operations)

    def through_nccl(self, nccl: OwnNccl) -> None:
        nccl.all_reduce(self._own, self._trainer.stream)
        self._trainer.driver.synchronize(self._trainer.stream)

    def free(self) -> None:
        self._trainer.context.unregister(self._numbers)
        for place in self._places:
            self._trainer.context.device_free(place)
        self._trainer.driver.call("cuMemFree_v2", ctypes.c_uint64(self._block))


def main() -> None:
    works: list[tuple[str, list[int]]] = [
        (name, counts) for name, counts in json.loads(os.environ["FIGURES"])
    ]
    largest = max(sum(4 * count + ALIGNMENT for count in counts) for _, counts in works)
    trainer = DeviceTrainer(slab_bytes=largest + (4 << 20))
    warm_up(trainer)
    nccl = OwnNccl(trainer.rank, trainer.size, Path(os.environ["FIGURES_FOLDER"]))
    for name, counts in works:
        tensors = Tensors(trainer, name, counts)
        take_turns(
            trainer, name, 4 * sum(counts), float(os.environ["FIGURES_SECONDS"]),
            {"ringd": tensors.through_ringd, "nccl": partial(tensors.through_nccl, nccl)},
        )  # fmt: skip
        tensors.free()
    nccl.destroy()


run(main)
