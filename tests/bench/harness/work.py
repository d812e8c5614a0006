"""One piece of work for a driver: what is reduced, and by which calls."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
from pathlib import Path

from . import paths

KIB = 1024
MIB = 1024 * KIB
WIDTHS = {"f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1}


@dataclasses.dataclass(frozen=True)
class TensorList:
    """Tensors in the order in which a backward pass yields them."""

    name: str
    counts: tuple[int, ...]
    ready_microseconds: tuple[float, ...] = ()

    @property
    def elements(self) -> int:
        return sum(self.counts)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a contestant does the work.

    `configuration` names one of the peer's settings; `mode` is blocking, async, bucket, null, train
    or alone; `memory` and `wait` concern ringd only.
    """

    configuration: str
    mode: str = "blocking"
    memory: str = "ordinary"
    wait: str = "spin"

    @property
    def exchanges(self) -> bool:
        """Whether anything has to cross a line."""
        return self.mode not in ("null", "alone")

    def label(self) -> str:
        extras = [self.mode]
        if self.memory != "ordinary":
            extras.append(self.memory)
        if self.wait != "spin":
            extras.append(self.wait)
        return "/".join([self.configuration, *extras])


def one_tensor(payload_bytes: int, dtype: str = "f32") -> TensorList:
    """A single tensor of so many bytes."""
    return TensorList(name=f"{payload_bytes} B", counts=(max(1, payload_bytes // WIDTHS[dtype]),))


def equal_tensors(number: int, payload_bytes: int) -> TensorList:
    """Many small tensors alike (f32)."""
    return TensorList(name=f"{number} x {payload_bytes} B", counts=(payload_bytes // 4,) * number)


def model_gradients(model: str, backward_seconds: float | None = None) -> TensorList:
    """The gradients of a published model; with `backward_seconds` also when each becomes ready."""
    with (paths.DATA / f"grads_{model}.csv").open(encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    ready: tuple[float, ...] = ()
    if backward_seconds is not None:
        shares = (float(row["cum_backward_flop_fraction_when_ready"]) for row in rows)
        ready = tuple(1e6 * backward_seconds * share for share in shares)
    return TensorList(
        name=model,
        counts=tuple(int(row["bytes_fp32"]) // 4 for row in rows),
        ready_microseconds=ready,
    )


def payload_bytes(tensors: TensorList, dtype: str) -> int:
    """Bytes that one rank contributes."""
    return tensors.elements * WIDTHS[dtype]


@dataclasses.dataclass(frozen=True)
class Batch:
    """How often a work is done in one go."""

    inner: int
    samples: int
    warmup: int
    verify: bool = False

    @property
    def calls(self) -> int:
        return self.inner * (self.samples + self.warmup)


def write_numbers(folder: Path, numbers: tuple[float, ...] | tuple[int, ...]) -> Path:
    """Writes one number per line, under a name made from the content, and returns the path."""
    text = "".join(f"{number:.3f}\n" if isinstance(number, float) else f"{number}\n" for number in numbers)
    path = folder / f"numbers-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not path.exists():
        path.write_text(text, encoding="ascii")
    return path


def work_line(identity: int, tensors: TensorList, dtype: str, way: Way, batch: Batch, folder: Path) -> str:
    """The line that a driver reads (drivers/control.h)."""
    pairs = {
        "id": identity,
        "dtype": dtype,
        "mode": way.mode,
        "memory": way.memory,
        "wait": way.wait,
        "inner": batch.inner,
        "samples": batch.samples,
        "warmup": batch.warmup,
        "bucket": 64 * MIB,
        "verify": int(batch.verify),
        "counts": write_numbers(folder, tensors.counts),
    }
    if way.mode in ("train", "alone"):
        pairs["model"] = tensors.name
    if tensors.ready_microseconds:
        pairs["ready"] = write_numbers(folder, tensors.ready_microseconds)
    return " ".join(f"{key}={value}" for key, value in pairs.items()) + "\n"
