"""A context that keeps account of what is submitted."""

from __future__ import annotations

import ctypes

import ringd
from ringd.types import Place, TensorSpec

DONE = 2**64 - 1


class Account:
    """A context whose all-reduces double float32, as if two equal ranks had been summed."""

    def __init__(self, *, interrupted: bool = False) -> None:
        self.place = Place(0, 2, 0, 1, 0, 2, 2, 0, True, 1, "node", "0")
        self.calls: list[str] = []
        self.interrupted = interrupted
        self.refuses_after: int | None = None
        self.ended = True  # what test() says
        self._specs: list[TensorSpec] = []
        self._next = 1

    def register(self, specs: list[TensorSpec]) -> list[int]:
        first = len(self._specs)
        self._specs += specs
        return list(range(first, len(self._specs)))

    def submit(self, registration: int, source: int, destination: int) -> int:
        self._take("submit", registration, source, destination)
        self._next += 1
        return self._next

    def submit_awaited(self, registration: int, source: int, destination: int) -> int:
        self._take("submit_awaited", registration, source, destination)
        if self.interrupted:
            raise KeyboardInterrupt
        return DONE

    def test(self, operation: int) -> bool:
        return self.ended

    def wait(self, operation: int, timeout_ms: int = -1) -> None:
        self.calls.append("wait done" if operation == DONE else "wait")

    def wait_all(self, operations: list[int], timeout_ms: int = -1) -> None:
        self.calls.append("wait done" if operations == [DONE] else f"wait for {len(operations)}")

    def _take(self, call: str, registration: int, source: int, destination: int) -> None:
        if len(self.calls) == self.refuses_after:
            raise ringd.ResourceExhaustedError("no room")
        self.calls.append(call)
        spec = self._specs[registration]
        if spec.kind == ringd.CollectiveKind.BARRIER:
            return
        count = 1
        for extent in spec.shape:
            count *= extent
        array = ctypes.c_float * count
        inputs, outputs = array.from_address(source), array.from_address(destination)
        for i in range(count):
            outputs[i] = 2 * inputs[i]
