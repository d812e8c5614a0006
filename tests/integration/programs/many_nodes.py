"""Rank program: a large and many tiny all-reduces, each checked. Without torch: many ranks of it
start on one machine."""

from __future__ import annotations

import ctypes

from ringd import Context, ReduceOp, TensorSpec

TINY = 40
TINY_ELEMENTS = 16
LARGE_ELEMENTS = 1 << 20
LARGE = 3


class Tensor:
    """Floats in the arena under a name of their own."""

    def __init__(self, context: Context, name: str, elements: int) -> None:
        self._context = context
        spec = TensorSpec(name, op=ReduceOp.SUM, shape=(elements,))
        (self._registration,) = context.register([spec])
        self._address = context.arena_alloc(elements * 4)
        self.words = (ctypes.c_float * elements).from_address(self._address)

    def submit(self) -> int:
        return self._context.submit(self._registration, self._address, self._address)

    def fill(self, values: list[float]) -> None:
        """With these, again and again."""
        count = len(self.words)
        ctypes.memmove(self._address, (ctypes.c_float * count)(*values * (count // len(values))), count * 4)


def main() -> None:
    with Context() as context:
        rank, size = context.place.rank, context.place.size
        pattern = [float(rank + index) for index in range(TINY_ELEMENTS)]
        sums = [float(sum(range(size)) + size * index) for index in range(TINY_ELEMENTS)]
        tiny = [Tensor(context, f"tiny{index}", TINY_ELEMENTS) for index in range(4)]
        for step in range(TINY):
            for tensor in tiny:
                tensor.fill(pattern)
            for ticket in [tensor.submit() for tensor in tiny]:
                context.wait(ticket)
            assert all(tensor.words[:] == sums for tensor in tiny), f"wrong sums in step {step}"
        large = Tensor(context, "large", LARGE_ELEMENTS)
        for step in range(LARGE):
            large.fill(pattern)
            context.wait(large.submit())
            expected = sums * (LARGE_ELEMENTS // TINY_ELEMENTS)
            assert large.words[:] == expected, f"wrong large sums in step {step}"
        print("right sums on", size, "nodes", flush=True)


main()
