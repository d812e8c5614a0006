"""One set of driver processes, kept for many pieces of work.

Interleaving contestants needs all of them alive at once: a driver without work is blocked in
read(), so it costs nothing while another one is measured.

Thread safety: one thread. Ownership: the session owns its processes and its control folder; stop()
ends and removes both. Invariant: every wait has a deadline.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .processor_time import Meter, ProcessorTime
from .site import PREFIX
from .work import Batch, TensorList, Way, work_line

LAUNCHER = Path(__file__).with_name("launcher.py")

# How much of a failed process's output is shown.
LAST_LINES = 6
# For each way of being ended: asked, told, killed.
END_PATIENCE_S = 5.0
MOST_COLUMNS = 160


class PeerError(Exception):
    """A peer broke, hung or gave a wrong sum: its figures would be worthless."""


class UnsupportedError(Exception):
    """A peer has no way of doing this work."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """One process to start; the launcher of an MPI starts its ranks itself."""

    argv: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Done:
    """What a batch took: seconds per call, one value for each sample, and the processor time of all
    its calls."""

    seconds: list[float]
    processor: ProcessorTime


class Session:
    """Starts the processes on construction, in one Unix session; ready() waits for them.

    With `freeze` they are stopped while they have no work.
    """

    def __init__(
        self, label: str, folder: Path, ranks: int, launches: list[Launch], freeze: bool = False
    ) -> None:
        self.label = label
        self._freeze = freeze
        self.version = ""
        self.folder = folder
        self._next_id = 1
        self._received = b""
        self._statuses = b""
        self._out = os.open(folder / "out", os.O_RDWR | os.O_NONBLOCK)
        # Opened for both directions, so that neither side has to wait for the other one's open().
        self._in = [os.open(folder / f"in.{rank}", os.O_RDWR) for rank in range(ranks)]
        self._log = (folder / "log").open("wb")
        self._launcher = self._launch(launches)

    def _launch(self, launches: list[Launch]) -> subprocess.Popen[bytes]:
        log = self._log.fileno()
        launcher = subprocess.Popen(
            [sys.executable, str(LAUNCHER), str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            pass_fds=[log],
            start_new_session=True,
        )
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        launcher.stdin.write(json.dumps([dataclasses.asdict(launch) for launch in launches]).encode())
        launcher.stdin.close()
        os.set_blocking(launcher.stdout.fileno(), False)
        return launcher

    def ready(self, seconds: float) -> None:
        """Waits until rank 0 has reported. Raises PeerError."""
        self.version = str(self._receive(0, seconds)["ready"])
        self._signal_all(signal.SIGSTOP)

    def run(self, tensors: TensorList, dtype: str, way: Way, batch: Batch, seconds: float) -> Done:
        """Does one batch."""
        identity = self._next_id
        self._next_id += 1
        line = work_line(identity, tensors, dtype, way, batch, self.folder).encode("ascii")
        meter = Meter(self._launcher.pid)
        for descriptor in self._in:
            os.write(descriptor, line)
        self._signal_all(signal.SIGCONT)
        answer = self._receive(identity, seconds)
        processor = meter.spent()
        self._signal_all(signal.SIGSTOP)
        if "unsupported" in answer:
            raise UnsupportedError(f"{self.label}: {answer['unsupported']}")
        values = answer["seconds"]
        assert isinstance(values, list)
        return Done([float(value) for value in values], processor)

    def _signal_all(self, what: signal.Signals) -> None:
        if self._freeze:
            self._signal(what)

    def _signal(self, what: signal.Signals) -> None:
        # The group's number is nobody else's before the launcher has been waited for.
        if self._launcher.returncode is None:
            os.killpg(self._launcher.pid, what)

    def _ended(self) -> str:
        """The exit statuses of processes that have ended; empty if all run."""
        assert self._launcher.stdout is not None
        self._statuses += self._launcher.stdout.read() or b""
        return ", ".join(self._statuses.decode().split())

    def _receive(self, identity: int, seconds: float) -> dict[str, object]:
        deadline = time.monotonic() + seconds
        while True:
            line, found, rest = self._received.partition(b"\n")
            if found:
                self._received = rest
                answer = json.loads(line)
                if "error" in answer:
                    raise PeerError(f"{self.label}: {answer['error']}")
                if answer.get("id") == identity:
                    return dict(answer)
                continue
            self._wait_for_more(deadline)

    def _wait_for_more(self, deadline: float) -> None:
        readable, _, _ = select.select([self._out], [], [], 0.2)
        if readable:
            self._received += os.read(self._out, 65536)
            return
        if ended := self._ended():
            raise PeerError(f"{self.label}: a process ended with {ended}: {self.log_tail()}")
        if time.monotonic() > deadline:
            raise PeerError(f"{self.label}: no answer in time: {self.log_tail()}")

    def log_tail(self) -> str:
        """The end of what the processes printed."""
        self._log.flush()
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        lines = [line.strip()[:MOST_COLUMNS] for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-LAST_LINES:])

    def stop(self) -> None:
        """Ends the processes and removes the control folder. Idempotent."""
        if not self.folder.exists():
            return
        for descriptor in self._in:
            os.write(descriptor, b"quit\n")
        self._signal_all(signal.SIGCONT)
        for ending in (None, signal.SIGTERM, signal.SIGKILL):
            if ending is not None:
                self._signal(ending)
            try:
                self._launcher.wait(timeout=END_PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        for descriptor in [*self._in, self._out]:
            os.close(descriptor)
        if self._launcher.stdout is not None:
            self._launcher.stdout.close()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def control_folder(ranks: int) -> Path:
    """Makes the folder with the FIFOs. Its name is short: some peers put sockets beside it."""
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir="/tmp"))
    os.mkfifo(folder / "out")
    for rank in range(ranks):
        os.mkfifo(folder / f"in.{rank}")
    return folder
