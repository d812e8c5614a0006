"""Rank program: makes many communicators of all ranks and lets them idle, told what to do next by
notes.

Arguments: the folder of the notes; how many communicators. Each rank prints a line of JSON at each
stage: what it is, the median of small all-reduces through ringd in microseconds, and how long the
stage took.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from ringd import Context, TensorSpec

OPERATIONS = 400


def median_us(context: Context, registration: int, address: int) -> float:
    """Not waited for at once, so that ringd carries it out if there are several nodes."""
    times = []
    for _ in range(OPERATIONS):
        began = time.perf_counter()
        context.wait(context.submit(registration, address, address))
        times.append(1e6 * (time.perf_counter() - began))
    return statistics.median(times)


def await_note(note: Path) -> None:
    deadline = time.monotonic() + 60
    while not note.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(note)
        time.sleep(0.05)


def main() -> None:
    notes, count = Path(sys.argv[1]), int(sys.argv[2])
    with Context() as context:
        (registration,) = context.register([TensorSpec("small", shape=(64,))])
        address = context.arena_alloc(256)

        def tell(stage: str, began: float) -> None:
            took = time.monotonic() - began
            us = median_us(context, registration, address)
            print(json.dumps({"stage": stage, "took_s": took, "median_us": us}), flush=True)
            await_note(notes / stage)

        tell("none", time.monotonic())
        began = time.monotonic()
        everybody = range(context.place.size)
        made = [context.create_communicator(f"idle {number}", everybody) for number in range(count)]
        tell("made", began)
        began = time.monotonic()
        specs = [TensorSpec("small", shape=(64,), communicator=number) for number in made]
        for used in context.register(specs):
            context.wait(context.submit(used, address, address))
        tell("used", began)
        began = time.monotonic()
        for number in made:
            context.destroy_communicator(number)
        tell("destroyed", began)


main()
