"""The soak's judgement: what it must find, and what it must not count against ringd."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.soak import deaths, leaks, step_times
from tests.soak.deaths import Death
from tests.soak.leaks import Holdings
from tests.soak.processors import Samples
from tests.soak.records import Record, Step, job_steps

MS = 1_000_000
JOB = "ours"


def samples(*lines: str) -> Samples:
    made = Samples(2, (JOB, JOB, "other"))
    for line in lines:
        made.add(line)
    return made


def steps(*milliseconds: float, waited_ms: float = 0) -> list[Step]:
    """Steps that follow each other, each a second after the one before."""
    return [
        Step(number, number * 1000 * MS, number * 1000 * MS + int(ms * MS), int(waited_ms * MS))
        for number, ms in enumerate(milliseconds)
    ]


def judged(attacked: list[Step], processors: Samples, control_s: float = 0.0) -> str | None:
    quiet = step_times.distribution(steps(*[2.0] * 20), samples(), JOB)
    return step_times.complaint(quiet, step_times.distribution(attacked, processors, JOB), control_s)


def test_a_late_step_is_found() -> None:
    assert judged(steps(2, 2, 2, 51), samples()) is None
    assert "58 ms longer" in str(judged(steps(2, 2, 2, 60), samples()))


def test_what_ranks_and_engines_waited_for_processors_is_excused() -> None:
    assert judged(steps(2, 2, 2, 2) + steps(200, waited_ms=170)[:1], samples()) is None
    before = f"R {990 * MS} 0 0 0 0 0 0 0 0 0"
    late = steps(2, 200, 2)
    assert judged(late, samples(before, f"R {1300 * MS} 0 0 0 0 0 {170 * MS} 0 0 0")) is None
    # The waits of another job's engine say nothing of this one.
    others = samples(before, f"R {1300 * MS} 0 0 0 0 0 0 0 {170 * MS} 0")
    assert step_times.distribution(late, others, JOB).slowest == pytest.approx(0.2)


def test_a_slow_change_of_a_communicator_is_found() -> None:
    assert step_times.slow_change(steps(900, 990), samples(), JOB) is None
    assert "change 1" in str(step_times.slow_change(steps(900, 1200), samples(), JOB))
    assert step_times.slow_change(steps(900, 1200, waited_ms=300), samples(), JOB) is None


def test_what_ringd_used_meanwhile_is_no_excuse() -> None:
    before = f"R {990 * MS} 0 0 0 0 0 0 0 0 0"
    waited = f"0 0 {170 * MS} 0"
    late = steps(2, 200, 2)
    assert judged(late, samples(before, f"R {1300 * MS} 0 0 0 {waited} 0 0")) is None
    for used in (f"0 {180 * MS} {waited} 0 0", f"0 0 0 {180 * MS} {170 * MS} 0 0 0"):
        busy = samples(before, f"R {1300 * MS} 0 {used}")
        assert "longer than undisturbed" in str(judged(late, busy))
    # Another job's engine is one process of many.
    assert judged(late, samples(before, f"R {1300 * MS} 0 0 0 {waited} 0 {180 * MS}")) is None


def test_a_processor_that_stood_still_is_excused_for_as_long_as_it_did() -> None:
    assert judged(steps(2, 200, 2), samples(f"G {1010 * MS} {1190 * MS}")) is None
    assert judged(steps(2, 400, 2), samples(f"G {1010 * MS} {1190 * MS}")) is not None
    assert judged(steps(2, 200, 2), samples(f"G {3010 * MS} {3190 * MS}")) is not None


def test_the_control_s_lateness_is_allowed_up_to_a_bound() -> None:
    assert judged(steps(2, 150, 2), samples(), control_s=0.1) is None
    assert judged(steps(2, 400, 2), samples(), control_s=5.0) is not None


def test_a_step_goes_from_the_last_rank_s_begin_to_the_last_rank_s_end(tmp_path: Path) -> None:
    records = []
    for rank, lines in enumerate(["S 0 100 900 7\nS 1 2000 2100 0\n", "S 0 500 800 5\nS 1 20"]):
        log = tmp_path / str(rank)
        log.write_text(lines)
        records.append(Record(log))
    assert job_steps(records) == [Step(0, 500, 900, 12)]


TEXT = "rank 3, pid 4711 on node0 (train), was killed by signal 9 (Killed) while 2 tensors were in flight"


@pytest.mark.parametrize(
    ("text", "code", "wrong"),
    [
        (TEXT, -9, ""),
        ("rank 3, pid 4711 on node0, ended; how is not visible to ringd", -9, ""),
        (TEXT, -15, "signal 9"),
        (TEXT.replace("pid 4711", "pid 4712"), -9, "does not name"),
        (TEXT.replace("rank 3", "rank 2"), -9, "does not name"),
        ("rank 3, pid 4711 on node0, exited with code 0", -9, "code 0"),
        ("rank 3, pid 4711 on node0, exited with code 7", 7, ""),
        ("rank 3, pid 4711 on node0, was killed by signal 9 before all ranks had joined", -9, "not begun"),
    ],
)
def test_untruths_about_a_death_are_found(text: str, code: int, wrong: str) -> None:
    found = deaths.untruths(text, Death(3, 4711, code, 0.0))
    assert (wrong in " ".join(found)) if wrong else not found


class Survivor:
    def __str__(self) -> str:
        return "rank 0"


def heard(*errors: dict[str, Any] | None, excused_s: float = 0.0) -> list[str]:
    survivors: list[Any] = [Survivor() for _ in errors]
    return deaths.complaints(Death(3, 4711, -9, 10.0, excused_s), survivors, errors)


def test_everybody_has_to_hear_soon_and_the_same() -> None:
    soon = {"at": 10.5, "text": TEXT}
    assert not heard(soon, soon)
    assert "heard nothing" in heard(soon, None)[0]
    assert "after 1.50 s" in heard(soon, {"at": 11.5, "text": TEXT})[0]
    assert not heard({"at": 11.5, "text": TEXT}, excused_s=0.6)
    assert "different words" in heard(soon, {"at": 10.5, "text": TEXT + "!"})[0]


def test_what_there_is_more_of_is_a_leak() -> None:
    before = Holdings(Counter({"socket:[N]": 5}), Counter({"/memfd:ringd-job": 1}), threads=10)
    assert not leaks.leaks(before, before)
    fewer = Holdings(Counter({"socket:[N]": 4}), threads=9)
    assert not leaks.leaks(before, fewer)
    more = Holdings(
        Counter({"socket:[N]": 10}), Counter({"/memfd:ringd-job": 2}), children=1, abstract_sockets=1
    )
    assert len(leaks.leaks(before, more)) == 4
