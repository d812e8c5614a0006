"""The Python suite against small trees of tests that pass, fail, can't be imported or end the
process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runner import python_suite
from tests.runner.report import Report

RunSuite = Callable[[str], tuple[int, list[str]]]

MIXED = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2
def test_not_here(): pytest.skip("needs a tape drive")
@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")
def test_teardown(broken): pass
"""
DEADLY = """
import os
def test_first(): pass
def test_deadly(): os._exit(3)
def test_after(): pass
"""
# Each of two waits until the other has begun.
WAITS_FOR_OTHER = """
import time
from pathlib import Path
HERE = Path(r"{folder}")
def test_waits():
    (HERE / "{mine}").touch()
    end = time.monotonic() + 30
    while not (HERE / "{other}").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
"""


@pytest.fixture
def run_suite(tree: Path, capsys: pytest.CaptureFixture[str]) -> RunSuite:
    """Runs all tests of a tree with one file; the exit code and the printed lines."""

    def run(content: str) -> tuple[int, list[str]]:
        (tree / "tests" / "test_sample.py").write_text(content)
        names = python_suite.names(tree)
        report = Report(names)
        python_suite.run(tree, python_suite.lanes(names), report)
        return report.finish(0), capsys.readouterr().out.splitlines()

    return run


def test_passes_failures_and_skips_are_told_apart(run_suite: RunSuite) -> None:
    code, lines = run_suite(MIXED)

    assert code == 1
    assert lines[-1] == "1 passed, 2 failed"
    assert "failed: tests/test_sample.py::test_bad" in lines
    assert "failed: tests/test_sample.py::test_teardown" in lines
    assert any("test_not_here" in line and "needs a tape drive" in line for line in lines)
    assert any("assert 1 == 2" in line for line in lines)


def test_tests_after_the_end_of_the_process_have_failed(run_suite: RunSuite) -> None:
    code, lines = run_suite(DEADLY)

    assert code == 1
    assert lines[-1] == "1 passed, 2 failed"


def test_a_file_that_cannot_be_imported_has_failed(run_suite: RunSuite) -> None:
    code, lines = run_suite("import there_is_no_such_module\n")

    assert code == 1
    assert lines[-1] == "0 passed, 1 failed"
    assert any("there_is_no_such_module" in line for line in lines)


def test_integration_tests_run_beside_the_others(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    integration = tree / "tests" / "integration"
    (integration / "failures").mkdir(parents=True)
    for folder, mine, other in ((integration, "one", "two"), (integration / "failures", "two", "one")):
        text = WAITS_FOR_OTHER.format(folder=tree, mine=mine, other=other)
        (folder / f"test_{mine}.py").write_text(text)
    names = python_suite.names(tree)
    report = Report(names)
    python_suite.run(tree, python_suite.lanes(names), report)

    assert report.finish(0) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"
