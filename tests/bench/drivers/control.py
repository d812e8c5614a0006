"""The harness's side channel, as the Python drivers see it (control.h describes the protocol)."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@dataclasses.dataclass(frozen=True)
class Work:
    """One work line."""

    id: int
    dtype: str
    mode: str
    memory: str
    inner: int
    samples: int
    warmup: int
    bucket_bytes: int
    verify: bool
    counts: list[int]
    ready: list[float]  # seconds; empty when everything is ready at once
    model: str = ""  # what is trained, where something is


# As kSleepMargin and kBeat of control.h.
SLEEP_MARGIN = 150e-6
BEAT = 10e-3


def sleep_until(when: float) -> None:
    """Returns at `when`, as time.perf_counter() counts, not a sleep's delay later."""
    time.sleep(max(0.0, when - time.perf_counter() - SLEEP_MARGIN))
    while time.perf_counter() < when:
        pass


def await_common_start(work: Work) -> None:
    """After a barrier: where gradients appear over time, all ranks begin together (as
    AwaitCommonStart of control.h)."""
    if work.ready:
        sleep_until((math.floor(time.perf_counter() / BEAT) + 1) * BEAT)


def pin_to_core(rank: int) -> None:
    """Pins this process by its rank; call before a library starts threads."""
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})


def parse_work(line: str) -> Work:
    """Reads one work line and the files that it names."""
    pairs = dict(word.split("=", 1) for word in line.split())
    counts = [int(text) for text in Path(pairs["counts"]).read_text().split()]
    ready_path = pairs.get("ready")
    ready = [1e-6 * float(text) for text in Path(ready_path).read_text().split()] if ready_path else []
    return Work(
        id=int(pairs["id"]),
        dtype=pairs["dtype"],
        mode=pairs["mode"],
        memory=pairs.get("memory", "ordinary"),
        inner=int(pairs.get("inner", "1")),
        samples=int(pairs.get("samples", "1")),
        warmup=int(pairs.get("warmup", "0")),
        bucket_bytes=int(pairs.get("bucket", "67108864")),
        verify=pairs.get("verify", "0") == "1",
        counts=counts,
        ready=ready,
        model=pairs.get("model", ""),
    )


def plan_buckets(counts: list[int], width: int, limit: int) -> list[tuple[int, int]]:
    """Cuts a list into ranges [first, end) of consecutive tensors of at most `limit` bytes."""
    ranges: list[tuple[int, int]] = []
    first = 0
    filled = 0
    for index, count in enumerate(counts):
        if index > first and (filled + count) * width > limit:
            ranges.append((first, index))
            first, filled = index, 0
        filled += count
    if counts:
        ranges.append((first, len(counts)))
    return ranges


def contribution(rank: int, index: int) -> int:
    """What `rank` puts at element `index` when sums are checked."""
    return (1 if rank % 2 == 0 else 2) << (index % 2)


class Channel:
    """One rank's ends of the FIFOs."""

    def __init__(self, folder: str, rank: int) -> None:
        self._rank = rank
        self._in: TextIO = open(f"{folder}/in.{rank}", encoding="ascii")  # noqa: SIM115
        self._out: TextIO = open(f"{folder}/out", "w", encoding="ascii")  # noqa: SIM115

    def works(self) -> Iterator[Work]:
        """Yields work until the harness says quit or goes away."""
        for line in self._in:
            if line.startswith("quit"):
                return
            yield parse_work(line)

    def ready(self, version: str) -> None:
        if self._rank == 0:
            self._send({"id": 0, "ready": version})

    def seconds(self, work: Work, seconds: list[float]) -> None:
        if self._rank == 0:
            self._send({"id": work.id, "seconds": seconds})

    def problem(self, work: Work, kind: str, text: str) -> None:
        """`kind` is "error" or "unsupported"."""
        if self._rank == 0:
            self._send({"id": work.id, kind: text})

    def _send(self, message: dict[str, object]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()
