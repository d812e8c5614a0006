"""Rank program: all-reduces of some size, checked and timed; then stays until told to end.

Arguments: the folder of this job's notes, MiB, how many. Rank 0 leaves the note `times`, seconds,
one a line; each rank the note `done<rank>`, and ends when there is the note `end`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

from ringd import Context, ReduceOp, TensorSpec

PATIENCE_S = 60.0


def main() -> None:
    notes, mib, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    elements = (mib << 20) // 4
    with Context() as context:
        rank, size = context.place.rank, context.place.size
        (registration,) = context.register([TensorSpec("gradients", op=ReduceOp.SUM, shape=(elements,))])
        address = context.arena_alloc(elements * 4)
        words = (ctypes.c_float * elements).from_address(address)
        pattern = (ctypes.c_float * 1000)(*(float(rank + i) for i in range(1000)))
        expected = [float(sum(range(size)) + size * i) for i in range(1000)]
        times = []
        for _ in range(count):
            for begin in range(0, elements - 1000, 1000):
                ctypes.memmove(address + 4 * begin, pattern, 4000)
            began = time.perf_counter()
            context.wait(context.submit(registration, address, address))
            times.append(time.perf_counter() - began)
            for begin in (0, elements // 3000 * 1000, (elements - 1001) // 1000 * 1000):
                assert words[begin : begin + 1000] == expected, f"wrong sums from element {begin} on"
        if rank == 0:
            (notes / "times").write_text("".join(f"{value}\n" for value in times))
        (notes / f"done{rank}").touch()
        deadline = time.monotonic() + PATIENCE_S
        while not (notes / "end").exists():
            assert time.monotonic() < deadline, "nobody says that this is the end"
            time.sleep(0.02)


main()
