"""What the command line refuses before anything is measured, and what it keeps of a run that
breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from harness.command_line import NOTHING_MEASURED, USAGE_ERROR, main, measure
from harness.suite_run import SuiteRun


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--peers", "ringd,opnmpi"], ["opnmpi", "openmpi"]),
        (["--json", "/no/such/folder/x.json"], ["/no/such/folder/x.json"]),
    ],
    ids=["peers", "json"],
)
def test_what_makes_no_sense_is_refused_at_once(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["host", *arguments]) == USAGE_ERROR
    told = capsys.readouterr().err
    for word in words:
        assert word in told


@pytest.mark.parametrize("limit", ["-1", "nan", "soon"])
def test_a_limit_is_a_number_of_seconds(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["host", "--limit", limit])
    assert ended.value.code == USAGE_ERROR
    assert "--limit" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "no json"], ids=["missing", "broken"])
def test_a_table_of_what_is_no_run_is_refused(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    if content is not None:
        file.write_text(content)
    assert main(["table", str(file)]) == USAGE_ERROR
    assert "table:" in capsys.readouterr().err


class Run:
    """A run with one row, in which nobody could be measured or after which it breaks."""

    skipped: tuple[str, ...] = ()

    def __init__(self, ringd: float | None, error: Exception | None = None) -> None:
        self.entries = [{"row": "host/x", "ringd": ringd, "peers": {"torch": None}}]
        self._error = error

    def run(self) -> None:
        if self._error is not None:
            raise self._error

    def result(self) -> dict[str, object]:
        return {"rows": self.entries}


def test_a_run_without_a_figure_has_measured_nothing() -> None:
    assert measure(cast(SuiteRun, Run(None)), None) == NOTHING_MEASURED
    assert measure(cast(SuiteRun, Run(1.5)), None) == 0


def test_the_rows_of_a_run_that_breaks_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    with pytest.raises(OSError, match="no namespaces"):
        measure(cast(SuiteRun, Run(1.5, OSError("no namespaces"))), target)
    assert json.loads(target.read_text())["rows"][0]["ringd"] == 1.5
