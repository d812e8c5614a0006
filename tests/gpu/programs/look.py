"""Opens the CUDA driver and NCCL, and prints as one line of JSON what is there. A process of its
own, since a driver may crash or hang."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib")
NAME_BYTES = 128
ATTRIBUTES = {"major": 75, "minor": 76}  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ..._MINOR


def candidates(variable: str, name: str) -> list[str]:
    """Where a library may be; what the variable names and nothing else, if it is set."""
    if variable in os.environ:
        return [os.environ[variable]]
    return [*in_wheel(name), name, *(f"{folder}/{name}" for folder in FOLDERS)]


def in_wheel(name: str) -> list[str]:
    """Where NVIDIA's Python package of NCCL has it."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return []
    places = (spec.submodule_search_locations or []) if spec else []
    return [str(path) for place in places if (path := Path(place) / "lib" / name).exists()]


def opened(variable: str, name: str, said: list[str]) -> tuple[Any, str]:
    """The library and its path; nothing and "" if none can be opened. Adds what was tried."""
    for candidate in candidates(variable, name):
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            said.append(f"{candidate}: {error}")
            continue
        return library, path_of(name) or candidate
    return None, ""


def found_by_name(name: str, said: list[str]) -> str:
    """Where the loader finds a library by itself; "" and a word in `said` if it does not."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        said.append(f"{name}: {error}")
        return ""
    return path_of(name)


def path_of(name: str) -> str:
    """Where the loader has found it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")
        if path[1] and Path("/" + path[2]).name.startswith(name.partition(".so")[0] + ".so"):
            return "/" + path[2]
    return ""


def describe_gpu(driver: Any, ordinal: int) -> dict[str, Any]:
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), ctypes.c_int(ordinal))
    name = ctypes.create_string_buffer(NAME_BYTES)
    driver.cuDeviceGetName(name, ctypes.c_int(NAME_BYTES), device)
    memory = ctypes.c_size_t()
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    capability = []
    for number in ATTRIBUTES.values():
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(number), device)
        capability.append(value.value)
    return {
        "name": name.value.decode(errors="replace"),
        "memory_bytes": memory.value,
        "compute_capability": ".".join(map(str, capability)),
    }


def main() -> None:
    tried: list[str] = []
    found: dict[str, Any] = {"cuda": "", "nccl": "", "nvml": "", "gpus": [], "tried": tried}
    found["device_files"] = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    driver, found["cuda"] = opened("RINGD_CUDA_LIBRARY", "libcuda.so.1", tried)
    if driver is not None:
        result = driver.cuInit(ctypes.c_uint(0))
        if result != 0:
            tried.append(f"{found['cuda']}: cuInit has failed: {result}")
        else:
            version = ctypes.c_int()
            driver.cuDriverGetVersion(ctypes.byref(version))
            found["cuda_version"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
            count = ctypes.c_int()
            driver.cuDeviceGetCount(ctypes.byref(count))
            found["gpus"] = [describe_gpu(driver, ordinal) for ordinal in range(count.value)]
            if not found["gpus"]:
                tried.append(f"{found['cuda']}: cuDeviceGetCount finds no GPU")
        found["nvml"] = found_by_name("libnvidia-ml.so.1", tried)
        nccl, found["nccl"] = opened("RINGD_NCCL_LIBRARY", "libnccl.so.2", tried)
        if nccl is not None:
            number = ctypes.c_int()
            nccl.ncclGetVersion(ctypes.byref(number))
            found["nccl_version"] = number.value
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
