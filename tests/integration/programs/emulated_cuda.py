"""PyTorch's CUDA tensors, on the emulated driver: tensors of the host that lie where the emulator
keeps a GPU's memory, and streams that ringd.torch is told of.

    cuda = EmulatedCuda()
    tensor = cuda.tensor([1.0, 2.0])
    hvd.allreduce_(tensor)
    cuda.synchronize()

PyTorch works on such a tensor at once, where it would put its work on a stream. With `eager`, which
is the default, the host therefore waits wherever the current stream is told to wait.
"""

from __future__ import annotations

import bisect
import ctypes
import os
from collections.abc import Callable
from typing import Any

import torch
from device_trainer import Driver
from ringd.torch import cuda_streams


class EmulatedCuda:
    def __init__(self, ordinal: int, *, eager: bool = True) -> None:
        self.driver = Driver(ordinal)
        self.stream = self.driver.stream
        self.eager = eager
        #: Of tensors that were let go while a stream may use them.
        self.kept = 0
        self._alias = ctypes.CDLL(os.environ["RINGD_CUDA_LIBRARY"]).ringd_emulator_alias
        self._alias.restype = ctypes.c_void_p
        # Where the emulator keeps memory, and what the GPU's address of it is; sorted.
        self._begins: list[int] = []
        self._memory: list[tuple[int, int]] = []
        # What PyTorch makes of a tensor on a GPU is there, too.
        for owner, name in ((torch, "empty_like"), (torch.Tensor, "contiguous"), (torch.Tensor, "to")):
            setattr(owner, name, self._staying(getattr(owner, name)))
        setattr(torch.Tensor, "is_cpu", property(lambda tensor: self._find(tensor) is None))  # noqa: B010
        for name, replacement in (
            ("is_on_gpu", lambda tensor: self._find(tensor) is not None),
            ("ordinal", lambda _: ordinal),
            ("address", self._address),
            ("current", lambda _: self.stream),
            ("keep_for_current", self._keep),
            ("empty_beside", lambda _, shape, dtype: self.empty(*shape, dtype=dtype)),
            ("is_capturing", lambda _: False),
        ):
            setattr(cuda_streams, name, replacement)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        count = int(torch.tensor(shape).prod())
        size = max(8, count * dtype.itemsize)
        address = self.driver.allocate(size)
        host = self._alias(ctypes.c_uint64(address), ctypes.c_size_t(size))
        place = bisect.bisect(self._begins, host)
        self._begins.insert(place, host)
        self._memory.insert(place, (size, address))
        memory = (ctypes.c_char * size).from_address(host)
        return torch.frombuffer(memory, dtype=dtype, count=max(count, 1))[:count].view(shape)

    def tensor(self, values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        content = torch.tensor(values, dtype=dtype)
        made = self.empty(*content.shape, dtype=dtype)
        made.copy_(content)
        return made

    def move(self, model: torch.nn.Module) -> torch.nn.Module:
        """As `model.cuda()`, with gradients that are there from the beginning."""
        for parameter in model.parameters():
            on_gpu = self.empty(*parameter.shape, dtype=parameter.dtype)
            on_gpu.copy_(parameter.data)
            parameter.data = on_gpu
            if parameter.requires_grad:
                gradient = self.empty(*parameter.shape, dtype=parameter.dtype)
                parameter.grad = gradient.zero_()
        return model

    def synchronize(self) -> None:
        self.driver.synchronize(self.stream)

    def _find(self, tensor: torch.Tensor) -> int | None:
        host = tensor.data_ptr()
        place = bisect.bisect(self._begins, host) - 1
        if place < 0 or host >= self._begins[place] + self._memory[place][0]:
            return None
        return self._memory[place][1] + host - self._begins[place]

    def _address(self, tensor: torch.Tensor) -> int:
        address = self._find(tensor)
        assert address is not None, "a tensor of the host was taken for one of a GPU"
        return address

    def _keep(self, _: torch.Tensor) -> None:
        self.kept += 1
        if self.eager:
            self.synchronize()

    def _staying(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def stays(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
            result = function(tensor, *arguments, **options)
            goes = any(isinstance(argument, (str, torch.device)) for argument in arguments)
            if goes or result.is_meta or self._find(tensor) is None or self._find(result) is not None:
                return result
            made = self.empty(*result.shape, dtype=result.dtype)
            with torch.no_grad():
                return made.copy_(result)

        return stays
