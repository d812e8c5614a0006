"""A tensor in device memory whose elements are bytes to the program, of whatever type they are."""

from __future__ import annotations

import array

import ringd
from device_trainer import DeviceTrainer


def warm_up(trainer: DeviceTrainer) -> None:
    """One all-reduce that the host waits for. NCCL sets itself up and loads its kernels by then,
    for which the driver may wait for all streams: none of them waits for a result yet."""
    tensor = RawTensor(trainer, ringd.TensorSpec("warm-up", shape=(1,)), bytes(4))
    tensor.write()
    trainer.context.wait(tensor.submit())
    tensor.free()


class RawTensor:
    """In place, unless `apart`: then the result goes to memory of its own."""

    def __init__(
        self,
        trainer: DeviceTrainer,
        spec: ringd.TensorSpec,
        content: bytes,
        *,
        apart: bool = False,
    ) -> None:
        self._trainer = trainer
        self._content = array.array("B", content)
        self.name = spec.name
        self._apart = apart
        self.source = trainer.context.device_alloc(max(1, len(content)))
        self.destination = trainer.context.device_alloc(max(1, len(content))) if apart else self.source
        (self.registration,) = trainer.context.register([spec._replace(memory=ringd.Memory.DEVICE)])

    def write(self) -> None:
        self._trainer.driver.write(self.source, self._content, self._trainer.stream)

    def submit(self) -> int:
        return self._trainer.context.submit_on_stream(
            self.registration, self.source, self.destination, self._trainer.stream
        )

    def read(self) -> bytes:
        """The result when the trainer's stream has come so far."""
        result = array.array("B", bytes(len(self._content)))
        self._trainer.driver.read(self.destination, result, self._trainer.stream)
        return result.tobytes()

    def free(self) -> None:
        """Nothing is in flight, and everything has been waited for."""
        self._trainer.context.unregister([self.registration])
        self._trainer.context.device_free(self.source)
        if self._apart:
            self._trainer.context.device_free(self.destination)
