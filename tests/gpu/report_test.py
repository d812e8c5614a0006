"""What RESULTS.md and results.json say of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.harness.check import FAILED, NOT_RUN, PASSED, Outcome
from tests.gpu.harness.report import Results, duration, render, write


def figure(mode: str, work: str, **values: Any) -> dict[str, Any]:
    return {"mode": mode, "work": work, "bytes": 4, "turns": 5, "ringd_s": 0.002} | values


def results(*outcomes: Outcome, emulated: bool = False) -> Results:
    return Results("2026-01-02T03:04:05Z", emulated, {"GPU": "a | b"}, 7.0, list(outcomes))


def test_each_check_has_a_row_with_its_result_and_why() -> None:
    lines = render(
        results(
            Outcome("good", PASSED, 1.25, facts=["seen", "heard"]),
            Outcome("bad", FAILED, 2.0, "rank 1 said\nno"),
            Outcome("absent", NOT_RUN, reason="there is no tape drive"),
        )
    ).splitlines()
    assert "| good | passed | 1.2 | seen; heard |" in lines
    assert "| bad | failed | 2.0 | rank 1 said no |" in lines
    assert "| absent | not run | 0.0 | there is no tape drive |" in lines
    assert any("1 passed, 1 failed, 1 not run" in line for line in lines)
    assert "| GPU | a / b |" in lines


def test_emulated_runs_say_so_at_the_top() -> None:
    assert "EMULATED" in render(results(emulated=True)).splitlines()[0]
    assert "EMULATED" not in render(results())


def test_figures_have_a_row_for_each_work_and_columns_for_each_mode() -> None:
    plain = Outcome(
        "figures", PASSED, figures=[figure("plain", "null", nccl_s=0.001, ratio=2.0), figure("plain", "step")]
    )
    shared = Outcome("shared", PASSED, figures=[figure("MPS", "null", nccl_s=0.004, ratio=0.5)])
    lines = render(results(plain, shared)).splitlines()
    assert "| null | 2 ms | 1 ms | 2.00 | 2 ms | 4 ms | 0.50 |" in lines
    # No peer, and another mode without this work.
    assert "| step | 2 ms | - | - | - | - | - |" in lines
    assert "## Figures" not in render(results())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.3456, "12.3 s"), (0.0123456, "12.3 ms"), (0.000123456, "123 µs"), (1e-6, "1 µs")],
)
def test_durations_have_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_exit_code_counts_failures_and_checks_without_time() -> None:
    assert results(Outcome("a", PASSED), Outcome("b", NOT_RUN, reason="no MPS")).exit_code() == 0
    assert results(Outcome("a", PASSED), Outcome("b", FAILED)).exit_code() == 1
    assert results(Outcome("b", NOT_RUN, spoils=True)).exit_code() == 1


def test_both_files_are_written_and_replaced(tmp_path: Path) -> None:
    json_file, markdown_file = tmp_path / "a" / "results.json", tmp_path / "RESULTS.md"
    write(results(Outcome("one", FAILED)), json_file, markdown_file)
    write(results(Outcome("one", PASSED)), json_file, markdown_file)
    assert json.loads(json_file.read_text())["outcomes"][0]["status"] == "passed"
    assert "| one | passed |" in markdown_file.read_text()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "RESULTS.md",
        "results.json",
    ]
