"""Intel MPI, from its wheels. Its compiler wrappers are not relocated, so gcc is called
directly."""

from __future__ import annotations

from pathlib import Path

from ..session import Launch
from ..site import Site
from .mpi import AGENT, MpiPeer, host_list
from .peer import HUGE_HEAP


class IntelMpi(MpiPeer):
    """Configurations: `default` and `tuned` on one host; `ofi-ring` between nodes."""

    name = "intelmpi"
    packages = ["impi-rt==2021.18.1", "impi-devel==2021.18.1"]

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        settings = ["I_MPI_PIN=0"]
        options = ["-n", str(site.topology.ranks)]
        if configuration == "tuned":
            settings += [HUGE_HEAP, "I_MPI_ADJUST_ALLREDUCE=8:2097152-2000000000", "I_MPI_SHM_CMA=0"]
        if site.shaped:
            options += [
                "-bootstrap",
                "ssh",
                "-bootstrap-exec",
                str(AGENT),
                "-hosts",
                host_list(site),
                "-ppn",
                str(site.topology.ranks_per_node),
                "-localhost",
                site.hub_address,
            ]
            settings += [
                "I_MPI_FABRICS=ofi",
                "I_MPI_OFI_PROVIDER=tcp",
                f"FI_TCP_IFACE={site.interface}",
                "I_MPI_THREAD_YIELD=3",
            ]
        else:
            settings.append("I_MPI_FABRICS=shm")
        if configuration == "ofi-ring":
            settings.append("I_MPI_ADJUST_ALLREDUCE=8")
        root = {
            "I_MPI_ROOT": str(self.prefix),
            "LD_LIBRARY_PATH": f"{self.prefix}/lib",
            "I_MPI_HYDRA_IFACE": "br0" if site.shaped else "lo",
        }
        argv = [str(self.prefix / "bin" / "mpiexec.hydra"), *options, *self.application(settings, control)]
        return [Launch(site.in_hub(argv), root)]
