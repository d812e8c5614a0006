"""Look for the GPUs that `deploy/quickstart --gpu` trains on.

`driver` looks for the CUDA driver and its devices, with any Python. `torch` looks with the Python
that is to train, and prints the number of GPUs and the path of NCCL (empty: by its name). Exit code
2: something is missing; the text says what was looked for.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

DRIVER = "libcuda.so.1"


def driver_findings(name: str, devices: Path) -> tuple[int, list[str]]:
    """How many GPUs the driver has, and what was looked at."""
    files = sorted(path.name for path in devices.glob("nvidia*"))
    said = [f"{devices}/nvidia*: {', '.join(files) or 'none'}"]
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        return 0, [f"{name}: {error}", *said]
    result = driver.cuInit(0)
    if result != 0:
        return 0, [f"{name}: cuInit has failed: {result}", *said]
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value, [f"{name}: {count.value} GPUs", *said]


def torch_findings() -> tuple[int, str]:
    """How many GPUs PyTorch has, and what it says of itself."""
    try:
        import torch
    except ImportError as error:
        return 0, f"PyTorch in {sys.executable}: {error}"
    if not torch.cuda.is_available():
        built = torch.version.cuda or "none: name a Python whose PyTorch has it (--python)"
        return 0, f"PyTorch {torch.__version__} in {sys.executable}: no CUDA that works; built for {built}"
    return torch.cuda.device_count(), ""


def nccl_of_torch() -> str:
    """Where NVIDIA's package, on which PyTorch depends, has NCCL."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return ""
    places = (spec.submodule_search_locations or []) if spec else []
    return next((str(path) for place in places if (path := Path(place, "lib/libnccl.so.2")).exists()), "")


def main() -> int:
    if sys.argv[1:] == ["driver"]:
        count, said = driver_findings(os.environ.get("RINGD_CUDA_LIBRARY", DRIVER), Path("/dev"))
    elif sys.argv[1:] == ["torch"]:
        count, text = torch_findings()
        said = [text]
    else:
        print("usage: quickstart_gpus.py driver|torch", file=sys.stderr)
        return 2
    if count == 0:
        print("deploy/quickstart: no GPU to train on; looked for", *said, sep="\n  ", file=sys.stderr)
        return 2
    if sys.argv[1] == "torch":
        print(f"{count} {os.environ.get('RINGD_NCCL_LIBRARY', nccl_of_torch())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
