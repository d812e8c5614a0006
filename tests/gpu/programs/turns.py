"""Measures by turns: ringd, the other way, ringd, ... so that what disturbs the machine disturbs
both alike."""

from __future__ import annotations

import time
from collections.abc import Callable

import ringd
from trainer import Trainer, say

LEAST_TURNS, MOST_TURNS = 5, 50
WARM_UP_TURNS = 2


def take_turns(
    trainer: Trainer, work: str, payload_bytes: int, seconds: float, ways: dict[str, Callable[[], None]]
) -> None:
    """Does each way once in each turn, until about so many seconds have passed on some rank, and
    says what each turn took on this rank. All ranks call it alike."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    begin = time.perf_counter()
    for turn in range(WARM_UP_TURNS + MOST_TURNS):
        for name, way in ways.items():
            trainer.all_reduce_awaited("begin")
            start = time.perf_counter()
            way()
            if turn >= WARM_UP_TURNS:
                took[name].append(time.perf_counter() - start)
        goes_on = turn < WARM_UP_TURNS + LEAST_TURNS or time.perf_counter() - begin < seconds
        if trainer.all_reduce_awaited("goes on", float(goes_on), op=ringd.ReduceOp.MIN) == 0:
            break
    say("measured", work=work, bytes=payload_bytes, seconds=took)
