"""Processes of ours that tests start and wait for: where programs are, what they find in their
environment, and how long everything may take."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# For whatever should take a second: other tests may be using all processors.
PATIENCE_S = 90.0
# Of launchers, and of ringd itself: what runs the tests must not place their ranks.
FOREIGN_VARIABLES = ("RINGD_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MPI_", "HOROVOD_", "NCCL_")
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def binary(name: str) -> Path:
    """Where a built program is: RINGD_BIN_DIR, or what deploy/setup has linked."""
    folder = Path(os.environ.get("RINGD_BIN_DIR", ROOT / "bin"))
    path = folder / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built; run deploy/setup, or set RINGD_BIN_DIR")
    return path


def python() -> str:
    """The interpreter that imports ringd and torch."""
    return os.environ.get("RINGD_PYTHON", sys.executable)


def clean_environment() -> dict[str, str]:
    """This process's environment without what could place or configure a rank."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN_VARIABLES) and name not in LAUNCHER_VARIABLES
    } | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def kernel_shows_exits() -> bool:
    """Whether others than a process's user learn how it ended, once it is reaped."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(itertools.takewhile(str.isdigit, minor)))) >= (6, 15)


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Fails if `condition` has not become true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


class Child:
    """A process of ours with its output in a file."""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signals the process if it is still there."""
        if self.running():
            self.process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code; minus the signal's number if one ended it."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs after {timeout_s} s:\n{self.output}") from None

    def expect_output(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits for a line that contains `text`."""
        wait_until(
            lambda: text in self.output or not self.running(), f"'{text}' in the output of {self}", timeout_s
        )
        assert text in self.output, f"{self} ended without '{text}':\n{self.output}"

    def destroy(self) -> None:
        if self.running():
            self.process.kill()  # also ends one that is stopped
        self.process.wait(PATIENCE_S)
