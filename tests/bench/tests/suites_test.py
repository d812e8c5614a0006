"""The rows are well formed, and the table shows them."""

from __future__ import annotations

from typing import Any

import pytest
from harness import table
from harness.aggregate import RINGD
from harness.command_line import main, parser
from harness.peers.ringd import CONFIGURATIONS
from harness.report import plain_row, row_text
from harness.row import Row
from harness.suite_run import ROWS, Options, selected


def all_rows() -> list[Row]:
    return [row for rows in ROWS.values() for row in rows()]


def test_names_are_unique_and_begin_with_the_suite() -> None:
    names = [row.name for row in all_rows()]
    assert len(names) == len(set(names))
    for suite, rows in ROWS.items():
        assert all(row.name.startswith(f"{suite}/") for row in rows())


def test_every_row_has_ringd_in_a_known_configuration() -> None:
    for row in all_rows():
        assert row.ways[RINGD], row.name
        for contestant, ways in row.ways.items():
            if contestant.split(",")[0] == RINGD:
                assert all(way.configuration in CONFIGURATIONS for way in ways), row.name


def test_rows_of_one_topology_are_side_by_side() -> None:
    for rows in ROWS.values():
        topologies = [row.topology for row in rows()]
        runs = [place for i, place in enumerate(topologies) if i == 0 or place != topologies[i - 1]]
        assert len(runs) <= len(set(topologies)) + 1


def test_a_quick_run_has_fewer_rows_and_a_pattern_selects() -> None:
    quick = selected(Options("host", quick=True, pattern=""))
    full = selected(Options("host", quick=False, pattern=""))
    assert 0 < len(quick) < len(full)
    assert [row.name for row in selected(Options("host", quick=True, pattern="4 ranks"))] == [
        "host/4 ranks/64 MiB, arena"
    ]
    assert selected(Options("wire", quick=False, pattern="wire/8*"))


def test_an_unknown_suite_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as stop:
        parser().parse_args(["nonsense"])
    assert stop.value.code == 2


def a_run(date: str = "2026-01-01", quick: bool = False) -> dict[str, Any]:
    return {
        "suite": "wire",
        "quick": quick,
        "machine": {"date": date, "processor": "P", "cores": 2, "memory_gib": 8, "kernel": "6"},
        "rows": [
            {
                "row": "wire/4 nodes/64 MiB",
                "unit": "ms",
                "ringd": 900.0,
                "peers": {"torch": 845.0, "mpich": 860.0},
                "best_peer": "torch",
                "ratio": 0.939,
                "floor": 805.3,
                "line_share": {"ringd": 0.895, "torch": 0.953},
                "state": "near",
                "goal": "95.5 % of the line",
                "met": False,
            }
        ],
    }


def test_the_table_shows_value_best_peer_and_a_missed_goal() -> None:
    text = table.render([a_run()])
    assert "| 4 nodes/64 MiB | ms | 900 (89.5 %) | torch 845 (95.3 %) | mpich 860 | 0.939 |  | 805 |" in text
    assert "**missed**" in text


def test_runs_of_one_suite_share_a_table_that_says_when_each_row_was_measured() -> None:
    text = table.render([a_run("2026-01-01"), a_run("2026-01-02", quick=True)])
    assert text.count("### Suite") == 1
    lines = [line for line in text.splitlines() if line.startswith("| 4 nodes")]
    assert [line.rsplit("| ", 1)[1] for line in lines] == ["2026-01-01 |", "2026-01-02, quick |"]


def test_a_row_without_peers_can_be_shown() -> None:
    entry = plain_row("idle/x", "cpu", "% of a core", 0.25, "below 0.5 %", True)
    assert "met" in row_text(entry)
    assert table.render_row(entry, "now").startswith("| x | % of a core | 0.25 |")


@pytest.mark.parametrize(("arguments", "hint"), [([], ""), (["--quick"], "--quick leaves out some")])
def test_a_pattern_that_no_row_matches_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], hint: str
) -> None:
    assert main(["wire", "--row", "nonsense", *arguments]) == 2
    said = capsys.readouterr().err
    assert "no row matches 'nonsense'" in said
    assert hint in said
