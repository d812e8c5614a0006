"""The programs that the soak starts, copied to where every user can run them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.integration.processes import ROOT, binary

TARGET = "//tests/soak:programs"
OWN = ("soak_trainer", "soak_attacker", "soak_control", "soak_processors")
BUILD_TIMEOUT_S = 900


def build() -> Path:
    """Builds what is not built; the folder of the programs."""
    bazel = ["bazel", "build", "--color=no", "--curses=no", TARGET]
    built = subprocess.run(
        bazel, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert built.returncode == 0, f"{TARGET} does not build:\n{built.stderr}"
    info = subprocess.run(
        ["bazel", "info", "bazel-bin"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return Path(info.stdout.strip()) / "tests" / "soak"


def install(folder: Path) -> None:
    """Puts all programs into `folder`, which is new."""
    built_in = build()
    own = [built_in / name for name in OWN]
    folder.mkdir(mode=0o755)
    for source in (*own, *(binary(name) for name in ("ringd", "ringd-engine", "ringctl"))):
        shutil.copy(source, folder / source.name)
        (folder / source.name).chmod(0o755)
