"""Who takes turns in a row, beside what, and when its floor is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

import pytest
from harness.aggregate import judgements
from harness.contestants import Contestants
from harness.floor_probe import MOST_SWEPT_BYTES, FloorProbe
from harness.machine import Probe
from harness.pacing import Pace
from harness.processor_time import ProcessorTime
from harness.row import Row
from harness.runner import Runner
from harness.session import Done, PeerError, Session, UnsupportedError
from harness.site import Site, Topology
from harness.suites import host, torch
from harness.work import MIB, Batch, TensorList, Way, one_tensor

LINE_NS = 100.0
PACE = Pace(rounds=3, batch_seconds=0.01, row_seconds=100.0)


@dataclasses.dataclass
class Neighbour:
    probe: FakeProbe

    def kill(self) -> None:
        self.probe.burning = False

    def wait(self) -> None:
        pass


class FakeProbe:
    """A machine that reads and writes a byte of a rank in 1 ns where all fits into 32 MiB, and in 4
    elsewhere."""

    def __init__(self) -> None:
        self.burning = False
        self.sweeps: list[tuple[int, int]] = []

    def line_ns(self) -> float:
        return LINE_NS

    def sweep_seconds(self, ranks: int, payload: int) -> float:
        self.sweeps.append((ranks, payload))
        return ranks * payload * (1e-9 if ranks * payload <= 32 * MIB else 4e-9)

    def burn(self, cpu: int) -> Neighbour:
        self.burning = True
        return Neighbour(self)


class FakeContestants:
    """Everyone takes 1 ms, twice as long beside a busy neighbour; torch breaks, MPICH cannot."""

    def __init__(self, probe: FakeProbe) -> None:
        self._probe = probe
        self._contestant = ""
        self.done: list[tuple[str, str, int, bool]] = []
        #: A configuration of Open MPI's that breaks after so many batches.
        self.breaks: tuple[str, int] | None = None
        self.stops = 0

    def session(self, contestant: str, configuration: str) -> Session:
        self._contestant = contestant
        self._configuration = configuration
        return cast(Session, self)

    def run(self, tensors: TensorList, dtype: str, way: Way, batch: Batch, seconds: float) -> Done:
        if self._contestant == "torch":
            raise PeerError("torch: wrong sum")
        if self.breaks is not None and (self._contestant, self._configuration) == (
            "openmpi",
            self.breaks[0],
        ):
            self.breaks = (self.breaks[0], self.breaks[1] - 1)
            if self.breaks[1] < 0:
                raise PeerError("openmpi: it has ended")
        if self._contestant == "mpich":
            raise UnsupportedError("mpich: no such type")
        self.done.append((self._contestant, dtype, tensors.elements, self._probe.burning))
        seconds = 2e-3 if self._probe.burning else 1e-3
        return Done(
            [seconds] * batch.samples, ProcessorTime(seconds * batch.calls, 2 * seconds * batch.calls)
        )

    def stop_one(self, contestant: str, configuration: str) -> None:
        pass

    def stop(self) -> None:
        self.stops += 1


def row_named(part: str) -> Row:
    return next(row for row in host.rows() if part in row.name)


def runner(probe: FakeProbe, contestants: FakeContestants, said: list[str], pace: Pace = PACE) -> Runner:
    site = Site(Topology(1, 2))  # not entered: nothing is made
    return Runner(site, cast(Contestants, contestants), cast(Probe, probe), pace, said.append)


def measure(row: Row) -> tuple[FakeProbe, FakeContestants, dict[str, Sequence[float]]]:
    probe = FakeProbe()
    contestants = FakeContestants(probe)
    measured = runner(probe, contestants, []).measure(row, quick=True)
    return probe, contestants, {sample.contestant: sample.seconds for sample in measured.samples}


def test_f32_takes_turns_with_the_narrower_types() -> None:
    _, contestants, times = measure(row_named("64 MiB of f8e4m3"))
    assert set(times) == {"ringd", "ringd, f32"}
    assert ("ringd", "f8e4m3", 64 * MIB, False) in contestants.done
    assert ("ringd, f32", "f32", 16 * MIB, False) in contestants.done


def test_beside_a_busy_process_the_reference_is_undisturbed_and_nobody_else() -> None:
    _, contestants, times = measure(row_named("1 MiB, arena, beside a busy process"))
    assert times["ringd"][0] == 2e-3
    assert times["ringd, undisturbed"][0] == 1e-3
    assert {name for name, _, _, burning in contestants.done if not burning} == {"ringd, undisturbed"}
    assert {name for name, _, _, burning in contestants.done if burning} == {
        "ringd",
        "openmpi",
        "intelmpi",
        "horovod",
    }


def test_processor_time_is_that_of_a_call() -> None:
    probe = FakeProbe()
    measured = runner(probe, FakeContestants(probe), []).measure(row_named("1 MiB, arena"), quick=True)
    own = [sample.processor for sample in measured.samples if sample.contestant == "ringd"]
    assert own
    for spent in own:
        assert spent is not None
        assert spent.processes == pytest.approx(1e-3)
        assert spent.machine == pytest.approx(2e-3)


def test_contestants_may_be_started_anew_between_rounds() -> None:
    probe = FakeProbe()
    contestants = FakeContestants(probe)
    pace = dataclasses.replace(PACE, rounds=6, starts=3)
    measured = runner(probe, contestants, [], pace).measure(row_named("1 MiB, arena"), quick=True)
    assert contestants.stops == 2
    own = [sample for sample in measured.samples if sample.contestant == "ringd"]
    assert len(own) == 6


def test_a_training_leaves_no_processes_to_the_next_row() -> None:
    probe = FakeProbe()
    contestants = FakeContestants(probe)
    row = next(row for row in torch.rows() if "2 ranks/MLP" in row.name)
    runner(probe, contestants, []).measure(row, quick=True)
    assert contestants.stops == 1
    assert "ringd" in {name for name, _, _, _ in contestants.done}


def test_who_cannot_do_the_work_is_told_from_who_broke() -> None:
    probe = FakeProbe()
    measured = runner(probe, FakeContestants(probe), []).measure(row_named("1 MiB, arena"), quick=True)
    assert measured.unable == {"mpich"}
    assert measured.broken == {"torch"}
    assert any("torch" in note for note in measured.notes)


def test_the_floor_is_read_beside_every_batch_at_the_rows_own_working_set() -> None:
    probe, _, _ = measure(row_named("1 MiB, arena"))
    assert set(probe.sweeps) == {(2, MIB)}
    batches = 3 * len(["ringd", "openmpi", "intelmpi", "horovod"])
    assert len(probe.sweeps) == batches + 2


def floor(payload: int, ranks: int = 2) -> float:
    row = Row("host/x", Topology(1, ranks), one_tensor(payload), {})
    return FloorProbe(row, cast(Probe, FakeProbe())).seconds()


def test_what_fits_into_the_caches_has_a_floor_of_the_caches() -> None:
    assert floor(MIB) == 2 * MIB * 1e-9
    assert floor(64 * MIB) == 2 * 64 * MIB * 4e-9
    assert floor(16 * MIB, ranks=4) == 4 * 16 * MIB * 4e-9


def test_small_calls_have_half_a_cache_lines_round_trip() -> None:
    assert floor(4) == floor(4096) == 0.5e-9 * LINE_NS


def test_what_no_cache_holds_is_not_swept_in_full() -> None:
    probe = FakeProbe()
    row = Row("host/x", Topology(1, 2), one_tensor(1024 * MIB), {})
    assert FloorProbe(row, cast(Probe, probe)).seconds() == 2 * 1024 * MIB * 4e-9
    assert probe.sweeps == [(2, MOST_SWEPT_BYTES // 2)]


def test_the_rest_of_a_replayed_step_may_be_in_the_caches() -> None:
    tensors = TensorList("two", (64 * MIB // 4, MIB // 4), (0.0, 1e6))
    row = Row("models/x", Topology(1, 2), tensors, {}, computing_seconds=1.0)
    found = FloorProbe(row, cast(Probe, FakeProbe()))
    assert found.seconds() == pytest.approx(2 * MIB * 1e-9)
    assert not found.beside_batches


def test_a_shaped_line_needs_no_probe() -> None:
    probe = FakeProbe()
    row = Row("wire/x", Topology(4, 1, rate_mbit=1000), one_tensor(64 * MIB), {})
    found = FloorProbe(row, cast(Probe, probe))
    assert (found.kind, found.beside_batches, probe.sweeps) == ("line", False, [])
    assert 0.80 < found.seconds() < 0.81


@pytest.mark.parametrize("batches", [0, 4], ids=["at once", "in between"])
def test_who_breaks_in_one_way_is_out_with_all_and_no_clause_is_met_without_it(batches: int) -> None:
    row = row_named("1 MiB, arena")
    assert [way.configuration for way in row.ways["openmpi"]] == ["sm", "ucx"]
    probe = FakeProbe()
    contestants = FakeContestants(probe)
    contestants.breaks = ("ucx", batches)
    measured = runner(probe, contestants, []).measure(row, quick=False)
    assert "openmpi" in measured.broken
    names = {sample.contestant for sample in measured.samples}
    assert "openmpi" not in names
    assert {"ringd", "intelmpi"} <= names
    (clause,) = judgements(measured)
    assert clause.met is None
    assert "without openmpi and torch" in clause.detail
