"""GPUs for a cluster's nodes: the emulated driver and NCCL (tests/gpu/emulator)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.cluster import Cluster, JobRun
from tests.integration.processes import binary

PROGRAMS = Path(__file__).parent / "programs"


def emulated(library: str) -> Path:
    """Where Bazel has put a library of tests, beside the programs that it has built."""
    path = binary("ringd").resolve().parents[1] / "tests" / library
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built; run bazel build //tests:emulators")
    return path


def give_gpus(cluster: Cluster, **settings: Any) -> dict[str, str]:
    """Nodes that are started from now on are machines of their own with emulated GPUs, as their
    ranks see them, too.

    settings: of the emulators, such as `nccl_faults="hang@1:2"`.

    Returns the environment of rank programs that import `device_trainer`.
    """
    cuda, nccl, kernels = (
        cluster.publish(emulated(library))
        for library in (
            "gpu/emulator/cuda/libcuda.so.1",
            "gpu/emulator/nccl/libnccl.so.2",
            "backends/cuda/kernels/libemulated_kernels.so",
        )
    )
    cluster.settings |= {"cuda_library": cuda, "nccl_library": nccl}
    # Where an engine may write also behind its file wall, and other users do, too.
    cluster.shared_memory.mkdir(exist_ok=True)
    cluster.shared_memory.chmod(0o777)
    cluster.environment |= {
        "RINGD_CUDA_LIBRARY": str(cuda),
        "RINGD_EMULATOR_CUDA_KERNELS": str(kernels),
        "RINGD_EMULATOR_CUDA_MACHINE": str(cluster.shared_memory / "{node}.gpus"),
        "NCCL_HOSTID": "{node}",
    } | {f"RINGD_EMULATOR_{name.upper()}": str(value) for name, value in settings.items()}
    failures = Path(__file__).parent / "failures" / "programs"
    return {"PYTHONPATH": f"{PROGRAMS}:{failures}"}


def start_on_gpus(
    cluster: Cluster, source: str, ranks_per_node: list[int], *, arguments: Sequence[str] = (), **options: Any
) -> JobRun:
    """A job on nodes with one emulated GPU for each of their ranks."""
    most = max(ranks_per_node)
    environment = give_gpus(cluster, **({"cuda_devices": most} | options))
    cluster.start_nodes(len(ranks_per_node))
    return cluster.start_job(source, ranks_per_node, environment=environment, arguments=arguments)


def has_opened(library: str, pid: int) -> bool:
    return library in Path(f"/proc/{pid}/maps").read_text()
