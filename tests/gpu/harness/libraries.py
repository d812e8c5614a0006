"""Which GPUs, and which CUDA driver and NCCL, are there?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.harness.bundle import EMULATORS, Bundle
from tests.integration.processes import clean_environment

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
LOOK_TIMEOUT_S = 60
NVML = "libnvidia-ml.so.1"
DRIVER_FILE = Path("/proc/driver/nvidia/version")


class NoGpu(Exception):
    """There is none that ringd could use; the text says what was looked for."""


@dataclass(frozen=True)
class Libraries:
    """What was found; paths of files that can be opened."""

    cuda: Path
    nccl: Path
    #: As ncclGetVersion has it, 22907 for 2.29.7.
    nccl_version: int
    cuda_version: str
    gpus: list[dict[str, Any]] = field(default_factory=list)
    #: Of the kernel module; "" if it does not say.
    driver: str = ""
    #: NVIDIA's management library, which NCCL opens by its name; none: it is not there.
    nvml: Path | None = None
    #: Where the loader has to look for that one, too; none: it finds it by itself.
    loader_folder: Path | None = None


def find_libraries() -> Libraries:
    """RINGD_CUDA_LIBRARY and RINGD_NCCL_LIBRARY name others than those that are found. NoGpu: as it
    says."""
    return read_look(_look({}))


def find_emulators(bundle: Bundle) -> Libraries:
    """NoGpu: the bundle has none."""
    cuda, nccl, kernels = (bundle.folder / "tests" / name for name in EMULATORS)
    names = {
        "RINGD_CUDA_LIBRARY": str(cuda),
        "RINGD_NCCL_LIBRARY": str(nccl),
        "RINGD_EMULATOR_CUDA_KERNELS": str(kernels),
        "LD_LIBRARY_PATH": str(bundle.libraries),
    }
    return read_look(_look(names))


def _look(variables: dict[str, str]) -> str:
    program = PROGRAMS / "look.py"
    try:
        # Its own variables must come through, which clean_environment leaves out.
        kept = {name: value for name, value in _own_variables().items() if name not in variables}
        said = subprocess.run(
            [sys.executable, program],
            env=clean_environment() | kept | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOOK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoGpu(f"opening the driver and NCCL has taken more than {LOOK_TIMEOUT_S} s") from None
    if said.returncode != 0:
        raise NoGpu(f"opening the driver and NCCL has ended with {said.returncode}: {said.stderr[-500:]}")
    return said.stdout


def _own_variables() -> dict[str, str]:
    names = ("RINGD_CUDA_LIBRARY", "RINGD_NCCL_LIBRARY")
    return {name: os.environ[name] for name in names if name in os.environ}


def read_look(line: str) -> Libraries:
    """What programs/look.py has printed. NoGpu: something is missing."""
    found = json.loads(line)
    if not found["gpus"] or not found["nccl"]:
        files = ", ".join(found["device_files"]) or "none"
        wanted = "no GPU" if not found["gpus"] else "no NCCL"
        raise NoGpu("\n  ".join([f"{wanted}; looked for", *found["tried"], f"/dev/nvidia*: {files}"]))
    cuda = Path(found["cuda"])
    nvml, folder = found["nvml"], None
    if not nvml and (cuda.parent / NVML).exists():
        folder, nvml = cuda.parent, str(cuda.parent / NVML)
    return Libraries(
        cuda=cuda,
        nccl=Path(found["nccl"]),
        nccl_version=found["nccl_version"],
        cuda_version=found["cuda_version"],
        gpus=found["gpus"],
        driver=_driver_version(),
        nvml=Path(nvml) if nvml else None,
        loader_folder=folder,
    )


def _driver_version() -> str:
    try:
        text = DRIVER_FILE.read_text()
    except OSError:
        return ""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return match.group(1) if match else ""


def nccl_text(version: int) -> str:
    """2.29.7 for 22907; 2.8.4 for 2804, as NCCL counted before 2.9."""
    if version < 10_000:
        return f"{version // 1000}.{version // 100 % 10}.{version % 100}"
    return f"{version // 10_000}.{version // 100 % 100}.{version % 100}"
