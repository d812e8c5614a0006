"""`tests/run` when something is in its way: it still ends with what is known."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner import cpp_suite
from tests.runner.__main__ import INTERRUPTED, main

PATIENCE_S = 60

# Of two tests of a tree without C++ tests.
PROGRAM = """
import sys
from pathlib import Path
from tests.runner import cpp_suite
from tests.runner.__main__ import main
cpp_suite.names = lambda root, sanitizer: []
sys.exit(main(Path(sys.argv[1]), ["--only", "test_sample"]))
"""
SLOW = """
import time
def test_good(): pass
def test_slow(): time.sleep(600)
"""


def refuse(root: Path, sanitizer: str | None) -> list[str]:
    raise RuntimeError("bazel query failed:\nBUILD:7: a comma is missing")


def test_suites_that_can_t_be_asked_for_their_tests_have_failed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests" / "conftest.py").write_text("import no_such_module")
    monkeypatch.setattr(cpp_suite, "names", refuse)

    assert main(tree, ["--only", "test_sample"]) == 1
    printed = capsys.readouterr().out
    assert "no_such_module" in printed
    assert "a comma is missing" in printed
    assert printed.splitlines()[-1] == "0 passed, 2 failed"


@pytest.mark.parametrize("arguments", [["--list"], ["--repeat", "2"]], ids=" ".join)
def test_neither_a_list_nor_a_loop_leaves_out_what_is_broken(
    tree: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests" / "test_sample.py").write_text("def test_good(): pass")
    monkeypatch.setattr(cpp_suite, "names", refuse)

    assert main(tree, ["--only", "test_sample", *arguments]) == 1
    printed = capsys.readouterr()
    assert "a comma is missing" in printed.err
    assert "a comma is missing" not in printed.out  # names, which a program may read
    assert "C++ tests" in printed.err


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "kill"])
def test_who_ends_it_hears_what_is_known(tree: Path, ended_by: signal.Signals) -> None:
    (tree / "tests" / "test_sample.py").write_text(SLOW)
    run = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import signal\nsignal.signal(2, signal.default_int_handler)\n{PROGRAM}",
            tree,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert "test_good" in run.stdout.readline()
    run.send_signal(ended_by)
    output, _ = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == INTERRUPTED
    assert "interrupted after 1 of 2 tests" in output
    assert output.splitlines()[-1] == "1 passed, 0 failed"
