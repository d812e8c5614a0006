"""`tests/run --repeat` on a small tree of Python tests, one of which fails now and then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runner.__main__ import INTERRUPTED, parse_arguments, repeat
from tests.runner.conditions import Conditions

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60

# Fails in every third run; the runs are counted in a file.
FLAKY = """
from pathlib import Path
COUNT = Path(__file__).with_name("count")
def test_good(): pass
def test_flaky():
    count = int(COUNT.read_text()) + 1 if COUNT.exists() else 1
    COUNT.write_text(str(count))
    assert count % 3, f"run {count}"
"""
SLOW = """
import time
from pathlib import Path
import pytest
@pytest.fixture
def cluster():
    yield
    time.sleep(0.5)
    Path(__file__).with_name("cleaned").touch()
def test_slow(cluster):
    Path(__file__).with_name("begun").touch()
    time.sleep(600)
"""
# Hears Ctrl-C also in a shell's background.
LOOP = """
import signal, sys
from pathlib import Path
from tests.runner.__main__ import repeat
from tests.runner.conditions import Conditions
signal.signal(signal.SIGINT, signal.default_int_handler)
names = ["tests/test_sample.py::test_slow"]
sys.exit(repeat(Path(sys.argv[1]), [], names, None, Conditions(runs=2, busy=True)))
"""


def test_a_test_that_fails_now_and_then_is_found(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests" / "test_sample.py").write_text(FLAKY)
    names = [f"tests/test_sample.py::{name}" for name in ("test_good", "test_flaky")]

    assert repeat(tree, [], names, None, Conditions(runs=5, one_core=True)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "failed 1 of 5 runs: tests/test_sample.py::test_flaky" in lines
    assert any("run 3" in line for line in lines)
    assert lines[-1] == "9 passed, 1 failed"


def test_a_test_that_always_passes_exits_with_0(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests" / "test_sample.py").write_text(FLAKY)
    names = ["tests/test_sample.py::test_good"]

    assert repeat(tree, [], names, None, Conditions(runs=3)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed"


def test_an_interrupted_loop_says_what_is_known_and_leaves_nothing_behind(tree: Path) -> None:
    (tree / "tests" / "test_sample.py").write_text(SLOW)
    loop = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(tree)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (tree / "tests" / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = [int(pid) for pid in Path(f"/proc/{loop.pid}/task/{loop.pid}/children").read_text().split()]
    assert len(children) == len(os.sched_getaffinity(0)) + 1  # pytest
    loop.send_signal(signal.SIGINT)
    output, _ = loop.communicate(timeout=PATIENCE_S)

    assert loop.returncode == INTERRUPTED
    assert (tree / "tests" / "cleaned").exists()
    assert output.splitlines()[-2].startswith("0 of 2 runs of 1 tests")
    assert output.splitlines()[-1] == "0 passed, 0 failed"
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.parametrize("arguments", [["--busy"], ["--one-core"], ["--repeat", "0"], ["--repeat", "often"]])
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments)
    assert ended.value.code == 2
    assert "--repeat" in capsys.readouterr().err
