"""An MPS of our own: its control daemon, in a folder of ours, ended with the check."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/bin", "/usr/local/cuda/bin")
START_S, QUESTION_S, STOP_S = 15.0, 10.0, 20.0


class MpsError(Exception):
    """MPS can't be started here; the text says why."""


def find_control() -> Path:
    """MpsError: it is not here."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *FOLDERS])
    found = shutil.which(CONTROL, path=path)
    if found is None:
        raise MpsError(f"there is no {CONTROL} in {path}")
    return Path(found)


class Mps:
    """As a context manager: MPS runs inside it, for processes that have `variables`."""

    def __init__(self, control: Path | None = None) -> None:
        self._control = control or find_control()
        self._folder = Path(tempfile.mkdtemp(prefix="ringd-mps-", dir="/tmp"))
        self.variables = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log"),
        }
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Mps:
        for folder in self.variables.values():
            Path(folder).mkdir()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def servers(self) -> str:
        """The pids of its servers, which the first process that uses MPS brings about; "" without
        any."""
        return self._ask("get_server_list")

    def _start(self) -> None:
        with (self._folder / "output").open("wb") as output:
            self._daemon = subprocess.Popen(
                [self._control, "-f"],
                env=os.environ | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._daemon.poll() is not None:
                said = (self._folder / "output").read_text(errors="replace")[-500:]
                raise MpsError(f"{self._control} ended with {self._daemon.returncode}: {said}")
            if self._ask("get_default_active_thread_percentage"):
                return
            time.sleep(0.1)
        raise MpsError(f"{self._control} has not answered within {START_S:.0f} s")

    def _ask(self, question: str) -> str:
        """Its answer; "" if there is none in time."""
        try:
            said = subprocess.run(
                [self._control],
                env=os.environ | self.variables,
                input=question + "\n",
                capture_output=True,
                text=True,
                timeout=QUESTION_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return said.stdout.strip() if said.returncode == 0 else ""

    def _stop(self) -> None:
        if self._daemon is not None:
            self._ask("quit")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(STOP_S)
            # Its server is in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._daemon.pid, signal.SIGKILL)
            self._daemon.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
