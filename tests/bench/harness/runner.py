"""Measures rows: every contestant's processes are up, and they take turns (A B C, B C A, ...), so
that whatever the machine does, it does to all of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable

from . import floors, pacing
from .contestants import Contestants
from .floor_probe import FloorProbe
from .machine import Probe, load_average
from .pacing import Pace
from .row import Measured, Reference, Row, Sample
from .session import Done, PeerError, UnsupportedError
from .site import Site
from .wire_counters import bytes_sent
from .work import Batch, TensorList, Way, payload_bytes

SLOW_CALL = 0.5
# A row that moves more than this leaves no processes behind: they keep their memory.
HEAVY_BYTES = 128 << 20


@dataclasses.dataclass
class Turn:
    """One way of one contestant within a row."""

    contestant: str
    way: Way
    tensors: TensorList
    dtype: str
    busy_neighbour: bool = False
    call_seconds: float = 0.0
    batch: Batch = dataclasses.field(default_factory=pacing.calibration)

    @property
    def seconds(self) -> float:
        return self.call_seconds * self.batch.calls

    @property
    def payload(self) -> int:
        """Bytes of each rank in one call."""
        return payload_bytes(self.tensors, self.dtype)


def turns_of(row: Row, quick: bool) -> list[Turn]:
    """Everyone who takes turns in a row: ringd, the peers, and ringd once more for each
    reference."""
    own = {name: Reference(ways) for name, ways in row.ways.items()}
    return [
        Turn(
            name,
            way,
            work.tensors or row.tensors,
            work.dtype or row.dtype,
            row.busy_neighbour and not work.undisturbed,
        )
        for name, work in {**own, **row.references}.items()
        for way in (work.ways[:1] if quick else work.ways)
    ]


class Runner:
    """Runs the rows of one site. Thread safety: one thread."""

    def __init__(
        self, site: Site, contestants: Contestants, probe: Probe, pace: Pace, say: Callable[[str], None]
    ) -> None:
        self._site = site
        self._contestants = contestants
        self._probe = probe
        self._pace = pace
        self._say = say

    def measure(self, row: Row, quick: bool) -> Measured:
        """Measures one row. A contestant that breaks in any of its ways leaves a note and is out,
        since what remains of it need not be its best; the others go on."""
        floor = FloorProbe(row, self._probe)
        measured = Measured(row, floor.seconds(), floor.kind)
        turns = self._calibrate(row, quick, measured)
        turns = self._keep_promising(turns, measured)
        if len(row.tensors.counts) > 1:
            turns = [turn for turn in turns if self._settles(turn, row, measured)]
        for turn in turns:
            turn.batch = pacing.plan_batch(turn.call_seconds, self._pace)
        rounds = pacing.plan_rounds([turn.seconds for turn in turns], self._pace)
        for number in range(rounds):
            if pacing.starts_anew(number, rounds, [turn.call_seconds for turn in turns], self._pace):
                turns = self._start_anew(turns, row, measured)
            start = number % max(1, len(turns))
            for turn in turns[start:] + turns[:start]:
                if floor.beside_batches:
                    measured.lower_floor(floor.seconds())
                self._take(turn, row, measured)
        measured.lower_floor(floor.seconds())
        # A training's processes are of one model.
        if row.payload > HEAVY_BYTES or row.training:
            self._contestants.stop()
        return measured

    def _calibrate(self, row: Row, quick: bool, measured: Measured) -> list[Turn]:
        turns: list[Turn] = []
        for turn in turns_of(row, quick):
            if turn.contestant in measured.broken:
                continue
            try:
                turns.append(self._calibrate_one(turn, row, measured))
            except UnsupportedError as reason:
                measured.notes.append(f"cannot do it: {reason}")
                measured.unable.add(turn.contestant)
            except PeerError as error:
                self._drop(turn, error, measured)
        return [turn for turn in turns if turn.contestant not in measured.broken]

    def _calibrate_one(self, turn: Turn, row: Row, measured: Measured) -> Turn:
        slow = measured.floor_seconds > 0.2 or row.computing_seconds > 0.2
        batch = pacing.calibration_for_slow_work() if slow else pacing.calibration()
        seconds = self._batch(turn, row, batch, measured).seconds
        if not slow and statistics.median(seconds) < 0.01:
            # The first calls set things up: for short ones look again.
            seconds = self._batch(turn, row, Batch(inner=5, samples=5, warmup=2), measured).seconds
        turn.call_seconds = min(seconds)
        self._say(f"    {turn.contestant} {turn.way.label()}: about {turn.call_seconds * 1e6:,.1f} us")
        return turn

    def _start_anew(self, turns: list[Turn], row: Row, measured: Measured) -> list[Turn]:
        """Where processes and their memory lie differs from start to start, and so do times."""
        self._contestants.stop()
        return [turn for turn in turns if self._settles(turn, row, measured)]

    def _settles(self, turn: Turn, row: Row, measured: Measured) -> bool:
        if turn.contestant in measured.broken:
            return False
        try:
            turn.call_seconds = min(
                self._batch(turn, row, pacing.settling(turn.call_seconds), measured).seconds
            )
        except PeerError as error:
            self._drop(turn, error, measured)
            return False
        return True

    def _keep_promising(self, turns: list[Turn], measured: Measured) -> list[Turn]:
        calls: dict[str, dict[str, float]] = defaultdict(dict)
        for turn in turns:
            calls[turn.contestant][turn.way.label()] = turn.call_seconds
        kept = []
        for turn in turns:
            if turn.way.label() in pacing.worth_repeating(calls[turn.contestant]):
                kept.append(turn)
            else:
                text = (
                    f"{turn.contestant} {turn.way.label()}: "
                    f"{turn.call_seconds * 1e3:.3g} ms in the first calls"
                )
                measured.notes.append(f"left out, far from its best way: {text}")
        return kept

    def _take(self, turn: Turn, row: Row, measured: Measured) -> None:
        if turn.contestant in measured.broken:
            return
        before = self._probe.line_ns()
        try:
            done = self._batch(turn, row, turn.batch, measured)
        except PeerError as error:
            self._drop(turn, error, measured)
            return
        sample = Sample(
            turn.contestant,
            turn.way.label(),
            tuple(done.seconds),
            before,
            self._probe.line_ns(),
            load_average(),
            done.processor / turn.batch.calls,
        )
        measured.samples.append(sample)

    def _batch(self, turn: Turn, row: Row, batch: Batch, measured: Measured) -> Done:
        """One batch, on an otherwise idle machine or beside the busy neighbour; checked against the
        line."""
        limit = 60.0 + 20 * turn.seconds + 50 * measured.floor_seconds
        session = self._contestants.session(turn.contestant, turn.way.configuration)
        sent = bytes_sent(self._site)
        neighbour = self._probe.burn(1) if turn.busy_neighbour else None
        try:
            done = session.run(turn.tensors, turn.dtype, turn.way, batch, limit)
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()
        self._check_line(turn, row, batch, done.seconds, bytes_sent(self._site) - sent)
        return done

    def _check_line(self, turn: Turn, row: Row, batch: Batch, seconds: list[float], sent: int) -> None:
        if not self._site.shaped or not turn.way.exchanges:
            return
        label = f"{turn.contestant} {turn.way.label()}"
        # The usual call: of a single one, rank 0's clock may have started late, when the others
        # were sending.
        usual = statistics.median(seconds)
        if floors.beats_the_line(usual, turn.payload, row.topology):
            raise PeerError(f"{label}: CHEATED, faster than the line: {usual * 1e3:.3g} ms")
        # When rank 0 has its sum, the last bytes for the others may still be in the shapers'
        # queues.
        if sent < 0.9 * floors.fewest_bytes_on_wire(turn.payload, row.topology.nodes, batch.calls):
            raise PeerError(f"{label}: CHEATED, only {sent} bytes crossed the links in {batch.calls} calls")

    def _drop(self, turn: Turn, error: PeerError, measured: Measured) -> None:
        contestant, way = turn.contestant, turn.way
        self._say(f"    {contestant} {way.label()}: {error}")
        measured.notes.append(str(error))
        measured.broken.add(contestant)
        measured.samples = [sample for sample in measured.samples if sample.contestant != contestant]
        self._contestants.stop_one(contestant, way.configuration)
