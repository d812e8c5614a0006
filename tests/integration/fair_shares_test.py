"""Two jobs on one line: what each gets of it, with one communicator or several, and how long a
small operation waits for a huge one."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import JobRun
from tests.integration.processes import wait_until
from tests.integration.shaped_line import ShapedLine
from tests.integration.two_ends import TwoEnds

PROGRAM = (Path(__file__).parent / "programs" / "sharing.py").read_text()
CHUNK_BYTES = 128 * 1024
# Of what is measured.
WINDOWS = 4

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root")


class Line(TwoEnds[ShapedLine]):
    """Two ringds that share a line of their own between jobs."""

    def __init__(self, folder: Path, rate_mbit: int) -> None:
        # Each tensor is an operation of its own.
        super().__init__(folder, ShapedLine(rate_mbit), fusion="off")

    @property
    def bytes_per_second(self) -> float:
        return self.line.rate_mbit * 125_000.0

    @property
    def chunk_us(self) -> float:
        return 1e6 * CHUNK_BYTES / self.bytes_per_second

    def start(self, name: str, kind: str, weight: int | None = None) -> JobRun:
        """A job of one rank at either end."""
        notes = self._notes(name)
        notes.mkdir()
        job = self.start_job(
            PROGRAM,
            [1, 1],
            job_id=name,
            arguments=[str(notes), kind],
            environment={} if weight is None else {"RINGD_WEIGHT": str(weight)},
        )
        for rank in range(2):
            wait_until((notes / f"started{rank}").exists, f"{name} starts: {job.transcript()}")
        return job

    def finish(self, job: JobRun) -> list[float]:
        """The times of a job of small operations, in microseconds."""
        notes = self._notes(job.job_id)
        (notes / "end").touch()
        job.expect_success()
        return (
            [float(line) for line in (notes / "times").read_text().split()]
            if (notes / "times").exists()
            else []
        )

    def _notes(self, name: str) -> Path:
        return self.folder / f"notes-{name}"

    def rates(self, seconds: float) -> dict[str, float]:
        """Bytes per second that each job puts on the line, from now on; those of its communicators
        as "job/communicator"."""
        before, began = self._sent(), time.monotonic()
        time.sleep(seconds)
        after, ended = self._sent(), time.monotonic()
        return {job: (after[job] - before[job]) / (ended - began) for job in before}

    def expect_rates(self, seconds: float, expect: Callable[[dict[str, float]], None]) -> None:
        """Fails if the rates are not as expected in one of some windows. Others may have had the
        processors amid one."""
        for window in range(WINDOWS):
            rates = self.rates(seconds)
            print(rates)
            try:
                expect(rates)
                break
            except AssertionError:
                if window == WINDOWS - 1:
                    raise

    def fills(self, bytes_per_second: float) -> bool:
        """Whether that is more of the line, but for the headers of its packets, than a share of it.
        A machine that is busy otherwise leaves some of it unused."""
        return bytes_per_second > 0.8 * self.bytes_per_second * 0.956

    def _sent(self) -> dict[str, int]:
        sent: Counter[str] = Counter()
        for entry in json.loads(self.ringctl("comms", "--json").stdout)["communicators"]:
            sent[entry["job_id"]] += int(entry.get("bytes_sent", 0))
            sent[f"{entry['job_id']}/{entry.get('name', '')}"] += int(entry.get("bytes_sent", 0))
        return sent


@pytest.fixture
def line() -> Iterator[Line]:
    folder = Path(tempfile.mkdtemp(prefix="ringd-", dir="/tmp"))
    # Slow enough for two nodes and their ranks on a busy machine: the line limits, and nothing
    # else.
    made = Line(folder, rate_mbit=200)
    try:
        yield made
    finally:
        try:
            made.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def test_jobs_share_a_line_by_their_weights(line: Line) -> None:
    heavy = line.start("heavy", "busy", weight=3)
    time.sleep(1)

    def heavy_fills(rates: dict[str, float]) -> None:
        assert line.fills(rates["heavy"]), "a job alone does not fill the line"

    line.expect_rates(3, heavy_fills)
    light = line.start("light", "busy")
    time.sleep(1)

    def share(both: dict[str, float]) -> None:
        assert both["heavy"] / both["light"] == pytest.approx(3, rel=0.1), both
        assert line.fills(both["heavy"] + both["light"]), both

    line.expect_rates(6, share)

    shown = json.loads(line.ringctl("jobs", "--json").stdout)["jobs"]
    assert {job["job_id"]: job["weight"] for job in shown} == {"heavy": 3, "light": 1}
    line.finish(heavy)
    time.sleep(0.5)

    def light_fills(rates: dict[str, float]) -> None:
        assert line.fills(rates["light"]), "what the other does not want any more is not used"

    line.expect_rates(3, light_fills)
    line.finish(light)


@pytest.mark.parametrize("weight", [1, 3])
def test_the_communicators_of_a_job_have_its_share_together(line: Line, weight: int) -> None:
    many = line.start("many", "busy:3", weight=weight)
    single = line.start("single", "busy")
    time.sleep(2)

    def share(rates: dict[str, float]) -> None:
        assert rates["many"] / rates["single"] == pytest.approx(weight, rel=0.1), rates
        assert line.fills(rates["many"] + rates["single"]), rates
        for number in range(3):
            assert rates[f"many/busy {number}"] == pytest.approx(rates["many"] / 3, rel=0.1), rates

    line.expect_rates(6, share)
    line.finish(many)
    line.finish(single)


def test_a_small_operation_waits_no_longer_than_a_chunk_takes(line: Line) -> None:
    for window in range(WINDOWS):
        small = line.start(f"undisturbed {window}", "small")
        time.sleep(2)
        undisturbed = statistics.median(line.finish(small))
        huge = line.start(f"huge {window}", "busy", weight=100)
        small = line.start(f"small {window}", "small")
        time.sleep(5)
        disturbed = statistics.median(line.finish(small))
        line.finish(huge)
        print(f"alone {undisturbed:.0f} us, beside a huge job {disturbed:.0f} us")
        if disturbed - undisturbed <= line.chunk_us:
            break
    assert disturbed - undisturbed <= line.chunk_us, f"a chunk takes {line.chunk_us:.0f} us"
