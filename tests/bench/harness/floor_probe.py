"""A row's floor: by arithmetic on a shaped line, by the probe on one host."""

from __future__ import annotations

from . import floors
from .machine import Probe
from .row import Row
from .work import WIDTHS

# No cache holds more than this: whatever is larger takes as much longer.
MOST_SWEPT_BYTES = 512 << 20


class FloorProbe:
    """Reads one row's floor, as often as it is asked. Thread safety: one thread."""

    def __init__(self, row: Row, probe: Probe) -> None:
        self._row = row
        self._probe = probe
        self._line_ns = 0.0
        self._sweeps: dict[int, float] = {}

    @property
    def kind(self) -> str:
        return "memory" if self._row.topology.rate_mbit is None else "line"

    @property
    def beside_batches(self) -> bool:
        """Whether it is read beside every batch: arithmetic never changes, and a replayed step
        needs sweeps of many sizes, which take too long."""
        return self.kind == "memory" and not self._row.tensors.ready_microseconds

    def seconds(self) -> float:
        """The floor as the machine is now."""
        row = self._row
        self._sweeps.clear()
        if self.kind == "memory":
            self._line_ns = self._probe.line_ns()
        if not row.tensors.ready_microseconds:
            return self._of_bytes(row.payload)
        payloads = [count * WIDTHS[row.dtype] for count in row.tensors.counts]
        ready = [1e-6 * moment for moment in row.tensors.ready_microseconds]
        return floors.replay_floor(payloads, ready, row.computing_seconds, self._of_remaining_bytes)

    def _of_bytes(self, payload: int) -> float:
        topology = self._row.topology
        if topology.rate_mbit is not None:
            return floors.wire_floor(payload, topology.nodes, topology.rate_mbit)
        if payload <= floors.SMALL_BYTES:
            return floors.host_floor(0.0, self._line_ns)
        return floors.host_floor(self._sweep(payload, payload), self._line_ns)

    def _of_remaining_bytes(self, payload: int) -> float:
        """What remains of a step may be in the caches, whatever the whole is: a size near its own
        is swept."""
        if self.kind == "line" or payload <= floors.SMALL_BYTES:
            return self._of_bytes(payload)
        return floors.host_floor(self._sweep(payload, floors.size_class(payload)), self._line_ns)

    def _sweep(self, payload: int, size: int) -> float:
        """Seconds for so many bytes of each rank, as fast as `size` bytes of each are swept."""
        ranks = self._row.topology.ranks
        swept = min(size, MOST_SWEPT_BYTES // ranks)
        if swept not in self._sweeps:
            self._sweeps[swept] = self._probe.sweep_seconds(ranks, swept)
        return self._sweeps[swept] * payload / swept
