"""The programs that the soak starts, copied to where every user can run them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.integration.cluster import ROOT, binary

TARGET = "//tests/soak:programs"
OWN = ("soak_trainer", "soak_attacker", "soak_processors")
BUILD_TIMEOUT_S = 900


def install(folder: Path) -> None:
    """Builds what is not built, and puts all programs into `folder`."""
    bazel = ["bazel", "build", "--color=no", "--curses=no", TARGET]
    built = subprocess.run(
        bazel, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert built.returncode == 0, f"{TARGET} does not build:\n{built.stderr}"
    info = subprocess.run(
        ["bazel", "info", "bazel-bin"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    built_in = Path(info.stdout.strip()) / "tests" / "soak"
    folder.mkdir(mode=0o755)
    for source in (*(built_in / name for name in OWN), binary("ringd"), binary("ringctl")):
        shutil.copy(source, folder / source.name)
        (folder / source.name).chmod(0o755)
