"""What the three MPIs have in common: a virtual environment, one C driver compiled with its
headers."""

from __future__ import annotations

from pathlib import Path

from .. import paths
from ..site import Site
from .peer import Peer, Say, compile_driver, wheels

AGENT = paths.DRIVERS / "agent"


class MpiPeer(Peer):
    """An MPI from PyPI. Subclasses say how its launcher and its settings look."""

    packages: list[str]

    @property
    def prefix(self) -> Path:
        return paths.PEERS / self.name

    @property
    def driver(self) -> Path:
        return paths.BINARIES / f"mpi_driver_{self.name}"

    def install(self, say: Say, may_install: bool) -> None:
        wheels(self.prefix, self.packages, self.prefix / "include" / "mpi.h", say, may_install)
        lib = self.prefix / "lib"
        flags = [f"-I{self.prefix}/include", f"-L{lib}", "-lmpi", f"-Wl,-rpath,{lib}"]
        source = paths.DRIVERS / "mpi_driver.c"
        compile_driver([source], self.driver, [*flags, "-Wl,--allow-shlib-undefined"])

    def application(self, settings: list[str], control: Path) -> list[str]:
        """What the launcher starts on every rank: the driver under its settings."""
        return ["env", *settings, str(self.driver), str(control)]


def host_list(site: Site) -> str:
    return ",".join(site.names)
