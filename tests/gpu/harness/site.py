"""Pretended nodes of this machine, on its GPUs or on emulated ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.gpu.harness.bundle import Bundle
from tests.gpu.harness.libraries import PROGRAMS, Libraries
from tests.integration.cluster import RINGD_UID, Cluster, JobRun
from tests.integration.emulated_gpus import PROGRAMS as INTEGRATION_PROGRAMS
from tests.integration.emulated_gpus import give_gpus
from tests.integration.failures.events import PROGRAMS as FAILURE_PROGRAMS
from tests.integration.failures.events import parse_events
from tests.integration.processes import ROOT

#: Of the bench's `training_models`.
MODELS = ROOT / "tests" / "bench" / "drivers"
#: The first NCCL that lets several ranks of one host share a GPU.
FIRST_WITH_SHARED_GPUS = 23_000
#: What reduces float8: this NCCL, on GPUs of this compute capability.
FIRST_WITH_FLOAT8, CAPABILITY_WITH_FLOAT8 = 22_400, 9.0
# NCCL between nodes: sockets, and not the cards that a machine with such a GPU has, whose plug-ins
# and limits are another matter. Set here, they overrule the machine's nccl.conf.
OVER_LOOPBACK = {
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "=lo",
}
# Of a process's log in a report.
LOG_CHARACTERS = 6000


@dataclass(frozen=True)
class Site:
    """Where the checks run."""

    bundle: Bundle
    libraries: Libraries
    emulated: bool
    #: Of all ringds and trainers, beside those that say where the GPUs are.
    variables: dict[str, str] = field(default_factory=dict)

    def with_variables(self, variables: dict[str, str]) -> Site:
        """The same with other variables of ringds and trainers."""
        return Site(self.bundle, self.libraries, self.emulated, self.variables | variables)

    @property
    def ranks_can_share_a_gpu(self) -> bool:
        return self.libraries.nccl_version >= FIRST_WITH_SHARED_GPUS

    @property
    def reduces_float8(self) -> bool:
        """Whether NCCL does, here."""
        return self.libraries.nccl_version >= FIRST_WITH_FLOAT8 and all(
            float(gpu["compute_capability"]) >= CAPABILITY_WITH_FLOAT8 for gpu in self.libraries.gpus
        )

    @contextlib.contextmanager
    def nodes(
        self, count: int, *, gpus: int = 1, other_user: bool = False, **settings: Any
    ) -> Iterator[Nodes]:
        """Nodes that serve, on which every process is ended afterwards.

        gpus: emulated ones of each node. other_user: ringds run as RINGD_UID, which needs root.
        settings: ringd's.
        """
        folder = Path(tempfile.mkdtemp(prefix="ringd-gpu-", dir="/tmp"))
        cluster = Cluster(folder)
        programs = {"RINGD_BIN_DIR": str(self.bundle.programs), "RINGD_PYTHON": sys.executable}
        try:
            with mock.patch.dict(os.environ, programs):
                nodes = Nodes(self, cluster, gpus)
                if other_user:
                    nodes.run_as_other_user(self.bundle)
                cluster.reap_as_launchers_do()
                cluster.start_nodes(count, **settings)
                yield nodes
            cluster.end()
        except BaseException as error:
            processes = [*cluster.nodes, *(rank for job in cluster.jobs for rank in job.ranks)]
            logs = "\n".join(f"== {process}\n{process.output[-LOG_CHARACTERS:]}" for process in processes)
            add_note(error, logs)
            with contextlib.suppress(AssertionError):  # the first error is the cause
                cluster.end()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(cluster.shared_memory, ignore_errors=True)


class Nodes:
    """Those of one check."""

    def __init__(self, site: Site, cluster: Cluster, gpus: int) -> None:
        self.cluster = cluster
        self._gpus = gpus if site.emulated else len(site.libraries.gpus)
        self._environment = {
            "RINGD_TEST_GPUS": str(self._gpus),
            "RINGD_TEST_FLOAT8": str(int(site.reduces_float8)),
        }
        if site.emulated:
            give_gpus(cluster, cuda_devices=gpus)
            self._environment["LD_LIBRARY_PATH"] = str(site.bundle.libraries)
            # Emulators need the processors, and times are not looked at.
            cluster.settings["spin"] = "0s"
        else:
            self._give_real_gpus(site)
        cluster.environment |= site.variables
        folders = (site.bundle.python, PROGRAMS, INTEGRATION_PROGRAMS, FAILURE_PROGRAMS, MODELS)
        self._environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))

    def _give_real_gpus(self, site: Site) -> None:
        cuda, nccl = site.libraries.cuda, site.libraries.nccl
        self.cluster.settings |= {"cuda_library": cuda, "nccl_library": nccl}
        # Each ringd is a machine of its own to NCCL, which so takes its network between them.
        without_mps = {} if "CUDA_MPS_PIPE_DIRECTORY" in site.variables else self._no_mps()
        self.cluster.environment |= {
            "RINGD_CUDA_LIBRARY": str(cuda),
            **OVER_LOOPBACK,
            "NCCL_HOSTID": "{node}",
            "NCCL_DEBUG": "WARN",
            **without_mps,
            # As SetCudaEnvironment has it for engines: streams that wait hold up no others.
            "CUDA_DEVICE_MAX_CONNECTIONS": "8" if "CUDA_MPS_PIPE_DIRECTORY" in site.variables else "32",
        }
        if site.libraries.loader_folder is not None:
            folders = [str(site.libraries.loader_folder), os.environ.get("LD_LIBRARY_PATH", "")]
            self.cluster.environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
        if site.ranks_can_share_a_gpu:
            self.cluster.environment["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"

    def _no_mps(self) -> dict[str, str]:
        """CUDA takes an MPS that runs on this machine, unless it looks where none is."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.cluster.folder / "no-mps")}

    def run_as_other_user(self, bundle: Bundle) -> None:
        """Nodes that are started from now on; what they need lies where that user can read it."""
        self.cluster.run_ringd_as(RINGD_UID)
        # Its starters look beside their folder.
        for part in (bundle.folder / "programs", bundle.libraries):
            shutil.copytree(part, self.cluster.folder / part.name)
        for setting in ("cuda_library", "nccl_library"):
            library = Path(str(self.cluster.settings[setting]))
            if not _others_can_read(library):
                self.cluster.settings[setting] = self.cluster.publish(library)

    def start(
        self, program: str, ranks_per_node: Sequence[int], environment: dict[str, str] | None = None
    ) -> JobRun:
        """Starts a job of a program of `programs/`."""
        source = (PROGRAMS / program).read_text()
        return self.cluster.start_job(
            source, ranks_per_node, environment=self._environment | (environment or {})
        )


def add_note(error: BaseException, note: str) -> None:
    """As BaseException.add_note, which came with Python 3.11."""
    error.__notes__ = [*getattr(error, "__notes__", []), note]


def _others_can_read(file: Path) -> bool:
    file = file.resolve()
    folders_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in file.parents)
    return folders_open and bool(file.stat().st_mode & stat.S_IROTH)


def expect_success(job: JobRun, timeout_s: float) -> None:
    """Fails with the first error of a rank, if there is one, in the first line."""
    codes = job.wait(timeout_s)
    if codes == [0] * len(codes):
        return
    errors = [f"{event['kind']}: {event['text']}" for event in parse_events(job.transcript(), "error")]
    raise AssertionError("\n".join([*errors[:1], f"exit codes {codes}", job.transcript()]))
