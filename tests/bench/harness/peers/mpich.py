"""MPICH 5."""

from __future__ import annotations

from pathlib import Path

from ..session import Launch
from ..site import Site
from .mpi import AGENT, MpiPeer, host_list
from .peer import HUGE_HEAP


class Mpich(MpiPeer):
    """Configurations: `default`, `huge-heap` and `tuned` on one host; `ofi` and `ofi-ring` between
    nodes.

    Between namespaces its own default (UCX) would see through to shared memory, so OFI's TCP is
    forced.
    """

    name = "mpich"
    packages = ["mpich==5.0.2"]

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        settings = [] if configuration == "default" else [HUGE_HEAP]
        options = ["-n", str(site.topology.ranks), "-bind-to", "none"]
        if configuration == "tuned":
            settings += [
                "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=reduce_scatter_allgather",
                "MPIR_CVAR_ALLREDUCE_COMPOSITION=2",
            ]
        if site.shaped:
            options += [
                "-launcher",
                "ssh",
                "-launcher-exec",
                str(AGENT),
                "-hosts",
                host_list(site),
                "-ppn",
                str(site.topology.ranks_per_node),
                "-localhost",
                site.hub_address,
            ]
            settings += [
                "MPIR_CVAR_CH4_NETMOD=ofi",
                "FI_PROVIDER=tcp",
                f"FI_TCP_IFACE={site.interface}",
                "MPIR_CVAR_ENABLE_HEAVY_YIELD=1",
                "MPIR_CVAR_NOLOCAL=1",
            ]
        if configuration == "ofi-ring":
            settings.append("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring")
        argv = [str(self.prefix / "bin" / "mpiexec.hydra"), *options, *self.application(settings, control)]
        return [Launch(site.in_hub(argv))]
