"""An MPS of our own: its control daemon, in a folder of ours, ended with the check."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/bin", "/usr/local/cuda/bin")
START_S, QUESTION_S, STOP_S = 15.0, 10.0, 20.0
#: Until a first process uses the GPU, for which the control daemon starts the server.
CLIENT_S = 30.0
LOG_CHARACTERS = 500


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
    """As a context manager: MPS runs inside it, for processes that have `variables`.

    client: a command that ends with 0 if it has used the GPU under MPS. It is tried first.
    """

    def __init__(self, client: Sequence[str | Path], control: Path | None = None) -> None:
        self._client = client
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
            self._try()
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
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # process_group= came with Python 3.11
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

    def _try(self) -> None:
        """The daemon answers also where it can't start a server, which it does for the first
        client."""
        try:
            said = subprocess.run(
                self._client,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=CLIENT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MpsError(f"no process can use MPS within {CLIENT_S:.0f} s{self._logs()}") from None
        if said.returncode != 0:
            why = said.stderr.strip()[-LOG_CHARACTERS:]
            raise MpsError(f"no process can use MPS: {why}{self._logs()}")

    def _logs(self) -> str:
        """The ends of what MPS itself has written."""
        folder = Path(self.variables["CUDA_MPS_LOG_DIRECTORY"])
        ends = [
            f"; {name}: {(folder / name).read_text(errors='replace').strip()[-LOG_CHARACTERS:]}"
            for name in ("control.log", "server.log")
            if (folder / name).exists()
        ]
        return "".join(ends)

    def _environment(self) -> dict[str, str]:
        """With the folder of the control program, beside which its server is."""
        path = os.pathsep.join([str(self._control.parent), os.environ.get("PATH", os.defpath)])
        return os.environ | self.variables | {"PATH": path}

    def _ask(self, question: str) -> str:
        """Its answer; "" if there is none in time."""
        try:
            said = subprocess.run(
                [self._control],
                env=self._environment(),
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
