"""A context and streams that only write down what they are asked for, and tensors of the host that
are taken for a GPU's."""

from __future__ import annotations

from typing import Any

import pytest
import ringd
import torch
from ringd.torch import cuda_streams
from ringd.types import Place, TensorSpec


class FakeContext:
    """As a context over two nodes; `ended` are the operations that a test says have."""

    raw = None

    def __init__(self, size: int = 2) -> None:
        self.place = Place(0, size, 0, 1, 0, size, size, 0, True, 0, "node", "0")
        self.opened: list[tuple[int, int]] = []
        self.refusal: ringd.RingdError | None = None
        self.room = 1000
        self.calls: list[tuple[Any, ...]] = []
        self.registered: list[TensorSpec] = []
        self.ended: set[int] = set()
        self.failed: dict[int, ringd.RingdError] = {}
        self.in_flight: set[int] = set()

    def device_open(self, device: int, slab_bytes: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.opened.append((device, slab_bytes))

    def register(self, specs: list[TensorSpec]) -> list[int]:
        self.registered += specs
        return [len(self.registered) - len(specs) + i + 1 for i in range(len(specs))]

    def _begin(self, *call: Any) -> int:
        if len(self.in_flight) >= self.room:
            raise ringd.ResourceExhaustedError("the slab is full (slab_bytes)")
        self.calls.append(call)
        operation = len(self.calls)
        self.in_flight.add(operation)
        return operation

    def submit_on_stream(self, registration: int, source: int, destination: int, stream: int) -> int:
        return self._begin("device", registration, source, destination, stream)

    def submit(self, registration: int, source: int, destination: int) -> int:
        return self._begin("host", registration)

    submit_awaited = submit

    def stream_wait(self, operation: int, stream: int) -> None:
        assert operation in self.in_flight
        self.calls.append(("stream_wait", operation, stream))

    def test(self, operation: int) -> bool:
        if operation not in self.in_flight:
            raise ringd.NotFoundError(f"operation {operation}")
        return operation in self.ended

    def wait(self, operation: int, timeout_ms: int = -1) -> None:
        if operation not in self.in_flight:
            raise ringd.NotFoundError(f"operation {operation}")
        self.in_flight.remove(operation)
        self.calls.append(("wait", operation))
        if operation in self.failed:
            raise self.failed[operation]

    def wait_all(self, operations: list[int], timeout_ms: int = -1) -> None:
        for operation in operations:
            self.wait(operation)


class Streams:
    """In the place of `cuda_streams`: tensors that a test has put on a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = 0x77
        self.capturing = False
        self.kept: list[torch.Tensor] = []
        self.copied = 0
        self._gpus: dict[int, int] = {}
        self._tensors: list[torch.Tensor] = []
        for name, replacement in (
            ("is_on_gpu", lambda tensor: tensor.data_ptr() in self._gpus),
            ("ordinal", lambda tensor: self._gpus[tensor.data_ptr()]),
            ("current", lambda tensor: self.current),
            ("keep_for_current", self.kept.append),
            ("is_capturing", lambda tensor: self.capturing),
            ("copy_to_host", self._copy),
        ):
            monkeypatch.setattr(cuda_streams, name, replacement)

    def put(self, tensor: torch.Tensor, gpu: int = 0) -> torch.Tensor:
        self._gpus[tensor.data_ptr()] = gpu
        self._tensors.append(tensor)  # its address stays its own
        return tensor

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        self.copied += 1
        return tensor.detach().clone()
