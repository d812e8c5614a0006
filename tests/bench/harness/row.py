"""What a row of a suite is, and what measuring it yields."""

from __future__ import annotations

import dataclasses

from .site import Topology
from .work import TensorList, Way, payload_bytes


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: the same work by ringd and by the peers.

    `ways` maps a contestant's name to the ways in which it may do the work; its value is its best way's. The
    first way is the one that a quick run takes.
    """

    name: str
    topology: Topology
    tensors: TensorList
    ways: dict[str, list[Way]]
    dtype: str = "f32"
    goal: str = ""
    # The goal as numbers: a ratio to the best peer, a part of the line, a time. All that are set must hold.
    goal_ratio: float | None = None
    goal_line_share: float | None = None
    goal_seconds: float | None = None
    quick: bool = True
    busy_neighbour: bool = False
    # Seconds of a step's backward pass that are no communication; subtracted from the times.
    computing_seconds: float = 0.0

    @property
    def payload(self) -> int:
        """Bytes that each rank contributes to one call (or to the list)."""
        return payload_bytes(self.tensors, self.dtype)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One batch of one contestant's way, with the state of the machine around it."""

    contestant: str
    way: str
    seconds: tuple[float, ...]
    before_ns: float
    after_ns: float
    load: float

    @property
    def key(self) -> tuple[str, str]:
        return (self.contestant, self.way)


@dataclasses.dataclass
class Measured:
    """All batches of a row, the floor, and what went wrong on the way."""

    row: Row
    floor_seconds: float
    floor_kind: str
    samples: list[Sample] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
