"""What rank programs with tensors on a GPU share: the driver's functions that they need, and
float32 tensors in device memory.

    from device_trainer import DeviceTrainer

    trainer = DeviceTrainer(slab_bytes=1 << 20)
    tensor = trainer.tensor("gradient", [1.0, 2.0])
    operation = tensor.all_reduce()
    trainer.context.stream_wait(operation, trainer.stream)
    assert tensor.read() == [...]
"""

from __future__ import annotations

import array
import ctypes
import os
from collections.abc import Callable
from typing import Any

import ringd
from trainer import Trainer, say


class Driver:
    """CUDA's driver API, as the rank itself uses it, with a stream."""

    def __init__(self, ordinal: int) -> None:
        self._library = ctypes.CDLL(os.environ["RINGD_CUDA_LIBRARY"])
        self.call("cuInit", ctypes.c_uint(0))
        self.use(ordinal)
        self.stream = self.new_stream()

    def use(self, ordinal: int) -> None:
        """Memory and streams are made on this GPU from now on."""
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, function: str, *arguments: Any) -> None:
        result = getattr(self._library, function)(*arguments)
        assert result == 0, f"{function} has failed: {result}"

    def new_stream(self) -> int:
        stream = ctypes.c_void_p()
        non_blocking = 1
        self.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(non_blocking))
        assert stream.value is not None
        return stream.value

    def allocate(self, size: int) -> int:
        """Memory of the rank's own, with any content."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, values: array.array[Any], stream: int) -> None:
        """Puts a copy to the device on the stream."""
        source, count = values.buffer_info()
        self.call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(address),
            ctypes.c_void_p(source),
            ctypes.c_size_t(count * values.itemsize),
            ctypes.c_void_p(stream),
        )

    def read(self, address: int, values: array.array[Any], stream: int) -> None:
        """Fills `values` when the stream comes to it, and waits for that: before the copy, too,
        which may keep other threads from the GPU until the stream has come to it."""
        self.synchronize(stream)
        target, count = values.buffer_info()
        self.call(
            "cuMemcpyDtoHAsync_v2",
            ctypes.c_void_p(target),
            ctypes.c_uint64(address),
            ctypes.c_size_t(count * values.itemsize),
            ctypes.c_void_p(stream),
        )
        self.synchronize(stream)

    def hold_up(self, stream: int) -> Callable[[], None]:
        """What is put on the stream from now on waits for a call of the result, which any thread
        may make. That calls no function of CUDA's: whoever frees memory waits for the stream, and
        may hold up all other calls until it goes on."""
        memory = ctypes.c_void_p()
        device_map, at_least = 2, 0
        self.call("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(8), ctypes.c_uint(device_map))
        assert memory.value is not None
        gate = ctypes.c_uint64.from_address(memory.value)
        gate.value = 0
        address = ctypes.c_uint64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), memory, ctypes.c_uint(0))
        self.call(
            "cuStreamWaitValue64_v2",
            ctypes.c_void_p(stream),
            address,
            ctypes.c_uint64(1),
            ctypes.c_uint(at_least),
        )

        def let_go() -> None:
            gate.value = 1

        return let_go

    def wait_for(self, stream: int, other: int) -> None:
        """What is put on `stream` from now on runs behind what is on `other`."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self.call("cuEventRecord", event, ctypes.c_void_p(other))
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, ctypes.c_uint(0))
        self.call("cuEventDestroy_v2", event)

    def synchronize(self, stream: int) -> None:
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))


class CudaArray:
    """An array of the rank's own, as CuPy's and others': `changes` are of its
    `__cuda_array_interface__`."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str = "<f4", **changes: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": typestr,
            "strides": None,
            "version": 3,
        } | changes


class DeviceTensor:
    """A tensor in device memory, in place: in the slab, or in memory of the rank's own."""

    def __init__(
        self,
        trainer: DeviceTrainer,
        name: str,
        values: list[Any],
        code: str,
        *,
        in_slab: bool = True,
        **spec: Any,
    ) -> None:
        self._trainer = trainer
        self._values = array.array(code, values)
        allocate = trainer.context.device_alloc if in_slab else trainer.driver.allocate
        self.address = allocate(max(1, len(values) * self._values.itemsize))
        described = ringd.TensorSpec(name, shape=(len(values),), memory=ringd.Memory.DEVICE, **spec)
        (self.registration,) = trainer.context.register([described])

    def all_reduce(self, stream: int | None = None) -> int:
        return self.submit(stream)

    def submit(self, stream: int | None = None) -> int:
        """Writes the values on the stream, and the operation behind them, of whatever kind."""
        stream = self._trainer.stream if stream is None else stream
        self.write(stream)
        return self._trainer.context.submit_on_stream(self.registration, self.address, self.address, stream)

    def write(self, stream: int | None = None) -> None:
        stream = self._trainer.stream if stream is None else stream
        self._trainer.driver.write(self.address, self._values, stream)

    def read(self, stream: int | None = None) -> list[Any]:
        """The content when the stream has come so far."""
        result = array.array(self._values.typecode, bytes(len(self._values) * self._values.itemsize))
        self._trainer.driver.read(self.address, result, self._trainer.stream if stream is None else stream)
        return result.tolist()


class DeviceTrainer(Trainer):
    """One rank with a GPU: that of its local rank, or the same as others where there are fewer
    (RINGD_TEST_GPUS)."""

    def __init__(self, slab_bytes: int = 1 << 20, **options: Any) -> None:
        super().__init__(**options)
        device = self.context.place.local_rank % int(os.environ.get("RINGD_TEST_GPUS", "256"))
        self.driver = Driver(device)
        self.stream = self.driver.stream
        self.context.device_open(device, slab_bytes)
        say("opened")

    def tensor(self, name: str, values: list[Any], code: str = "f", **spec: Any) -> DeviceTensor:
        return DeviceTensor(self, name, values, code, **spec)
