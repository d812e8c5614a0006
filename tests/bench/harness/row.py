"""What a row of a suite is, and what measuring it yields."""

from __future__ import annotations

import dataclasses

from .goals import Clause
from .processor_time import ProcessorTime
from .site import Topology
from .work import TensorList, Way, payload_bytes


@dataclasses.dataclass(frozen=True)
class Reference:
    """Takes turns in the row for a clause that compares ringd with it; no contestant. Mostly ringd
    once more.

    What is None is the row's.
    """

    ways: list[Way]
    tensors: TensorList | None = None
    dtype: str | None = None
    # Without the row's busy neighbour.
    undisturbed: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: the same work by ringd and by the peers.

    `ways` maps a contestant's name to the ways in which it may do the work; its value is its best
    way's. The first way is the one that a quick run takes.
    """

    name: str
    topology: Topology
    tensors: TensorList
    ways: dict[str, list[Way]]
    dtype: str = "f32"
    # All must hold.
    goals: tuple[Clause, ...] = ()
    # ringd itself is under names that begin with "ringd, ".
    references: dict[str, Reference] = dataclasses.field(default_factory=dict)
    quick: bool = True
    busy_neighbour: bool = False
    # Seconds of a step's backward pass that are no communication; subtracted from the times.
    computing_seconds: float = 0.0
    # Whole steps of a real training, computing included; the reference "alone" exchanges nothing.
    training: bool = False

    @property
    def goal(self) -> str:
        """The goal in words; empty where the row has none."""
        return "; ".join(clause.text for clause in self.goals)

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
    # Of one call, all ranks and nodes together.
    processor: ProcessorTime | None = None

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
    # Contestants that said of a way that they cannot do this work.
    unable: set[str] = dataclasses.field(default_factory=set)
    # Those that broke in one way, and are out of the row with all.
    broken: set[str] = dataclasses.field(default_factory=set)

    def lower_floor(self, seconds: float) -> None:
        """Takes one more reading: the floor is what the machine can do at its best."""
        self.floor_seconds = min(self.floor_seconds, seconds)
