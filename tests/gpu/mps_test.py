"""How MPS is started and ended, with programs in the place of its control daemon."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.gpu.harness import mps
from tests.gpu.harness.mps import Mps, MpsError

# As the real one: with -f it stays, and writes its pid; without, it is asked by standard input.
DAEMON = """#!/bin/sh
if [ "$1" = -f ]; then
  echo $$ > "$CUDA_MPS_PIPE_DIRECTORY/pid"
  exec sleep 1000
fi
read -r question
case $question in
  get_default_active_thread_percentage) test -s "$CUDA_MPS_PIPE_DIRECTORY/pid" && echo 100.0 ;;
  get_server_list) echo 4711 ;;
  quit) %s ;;
esac
"""


WORKS = ["true"]


def control(folder: Path, source: str) -> Path:
    program = folder / "control"
    program.write_text(source)
    program.chmod(0o755)
    return program


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_runs_inside_and_has_ended_afterwards(tmp_path: Path) -> None:
    quits = 'kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")"'
    with Mps(WORKS, control(tmp_path, DAEMON % quits)) as running:
        folder = Path(running.variables["CUDA_MPS_PIPE_DIRECTORY"])
        pid = int((folder / "pid").read_text())
        assert not ended(pid)
        assert running.servers() == "4711"
    assert ended(pid)
    assert not folder.exists()


def test_one_that_does_not_quit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "STOP_S", 0.3)
    begin = time.monotonic()
    with Mps(WORKS, control(tmp_path, DAEMON % ":")) as running:
        pid = int((Path(running.variables["CUDA_MPS_PIPE_DIRECTORY"]) / "pid").read_text())
    assert ended(pid)
    assert time.monotonic() - begin < 10


def test_one_that_ends_at_once_is_told_with_its_words(tmp_path: Path) -> None:
    program = control(tmp_path, "#!/bin/sh\necho 'no permission'\nexit 5\n")
    with pytest.raises(MpsError, match=r"ended with 5: no permission"), Mps(WORKS, program):
        pass


def test_one_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "START_S", 0.5)
    monkeypatch.setattr(mps, "STOP_S", 0.3)
    program = control(tmp_path, '#!/bin/sh\n[ "$1" = -f ] && exec sleep 1000\nexit 1\n')
    with pytest.raises(MpsError, match="not answered"), Mps(WORKS, program):
        pass


def test_one_that_no_process_can_use_is_told_with_its_logs(tmp_path: Path) -> None:
    client = ["/bin/sh", "-c", "echo cuInit has failed: 805 >&2; exit 1"]
    daemon = DAEMON.replace(
        "  echo $$", '  echo "no server found" > "$CUDA_MPS_LOG_DIRECTORY/control.log"\n  echo $$'
    )
    program = control(tmp_path, daemon % ":")
    with (
        pytest.raises(MpsError, match=r"cuInit has failed: 805; control.log: no server found"),
        mock.patch.object(mps, "STOP_S", 0.3),
        Mps(client, program),
    ):
        pass


def test_one_that_keeps_its_first_process_waiting_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "CLIENT_S", 0.3)
    monkeypatch.setattr(mps, "STOP_S", 0.3)
    with pytest.raises(MpsError, match="within 0 s"), Mps(["sleep", "100"], control(tmp_path, DAEMON % ":")):
        pass


def test_its_server_is_looked_for_beside_the_control_program_first(tmp_path: Path) -> None:
    server = tmp_path / "nvidia-cuda-mps-server"
    server.write_text('#!/bin/sh\necho started > "$CUDA_MPS_LOG_DIRECTORY/server.log"\n')
    server.chmod(0o755)
    quits = 'kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")"'
    daemon = DAEMON.replace("  echo $$", "  nvidia-cuda-mps-server\n  echo $$")
    with Mps(WORKS, control(tmp_path, daemon % quits)) as running:
        assert (Path(running.variables["CUDA_MPS_LOG_DIRECTORY"]) / "server.log").exists()
