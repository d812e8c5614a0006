"""Where the ranks of a row run: this machine, or nodes that are network namespaces with shaped
links.

Each site gets network namespaces of its own, also on one host: there the route of the loopback
interface can choose the congestion control (the machine's default differs between machines, and
gloo goes over TCP).

Ownership: a Site owns its namespaces, /etc/netns entries and every process inside them; close()
ends and removes all. Namespaces of a run that was killed are removed when the next one starts.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

PREFIX = "rbench"
NETWORK = "10.77.0"
HUB_HOST = 254


@dataclasses.dataclass(frozen=True)
class Topology:
    """`rate_mbit` is None for ranks on one host; then `nodes` is 1."""

    nodes: int
    ranks_per_node: int
    rate_mbit: int | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


class SiteError(Exception):
    """The network could not be set up."""


def run(*argv: str) -> str:
    """Runs a short command; raises SiteError with its message."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise SiteError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def burst_bytes(rate_mbit: int) -> int:
    """tbf's bucket: at least two of the kernel's largest segments, and a quarter of a millisecond
    of the line."""
    return max(131072, rate_mbit * 125_000 // 4000)


class Site:
    """The namespaces of one topology. Use as a context manager."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._prefix = f"{PREFIX}-{os.getpid()}"
        self.hub = f"{self._prefix}-hub"
        self.shaped = topology.rate_mbit is not None
        self.names = [f"{self._prefix}-n{node}" for node in range(topology.nodes)] if self.shaped else []
        self._next_port = 20000

    def __enter__(self) -> Site:
        try:
            self._create()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, node: int) -> str:
        """The address of a node; the loopback address on one host."""
        return f"{NETWORK}.{node + 1}" if self.shaped else "127.0.0.1"

    @property
    def hub_address(self) -> str:
        return f"{NETWORK}.{HUB_HOST}"

    @property
    def interface(self) -> str:
        return "eth0" if self.shaped else "lo"

    def port(self) -> int:
        """A port that nothing in these namespaces has used yet."""
        self._next_port += 1
        return self._next_port

    def inside(self, node: int, argv: list[str]) -> list[str]:
        """The command that runs `argv` on a node, under a host name of its own."""
        if not self.shaped:
            return ["ip", "netns", "exec", self.hub, *argv]
        script = 'hostname "$1" && shift && exec "$@"'
        name = self.names[node]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", script, "sh", name, *argv]

    def in_hub(self, argv: list[str]) -> list[str]:
        """The command that runs a launcher beside the nodes."""
        return ["ip", "netns", "exec", self.hub, *argv]

    def _create(self) -> None:
        run("ip", "netns", "add", self.hub)
        run("ip", "-n", self.hub, "link", "set", "lo", "up")
        if not self.shaped:
            for target in ("127.0.0.0/8", "127.0.0.1"):
                run(
                    "ip",
                    "-n",
                    self.hub,
                    "route",
                    "replace",
                    "local",
                    target,
                    "dev",
                    "lo",
                    "table",
                    "local",
                    "proto",
                    "kernel",
                    "scope",
                    "host",
                    "src",
                    "127.0.0.1",
                    "congctl",
                    "cubic",
                )
            return
        run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "br0", "up")
        self._address(self.hub, "br0", self.hub_address)
        for node, name in enumerate(self.names):
            self._add_node(node, name)
        self._write_hosts()

    def _add_node(self, node: int, name: str) -> None:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        port = f"v{node}"
        run("ip", "-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", self.hub, "link", "set", port, "master", "br0", "up")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        self._address(name, "eth0", self.address(node))
        assert self.topology.rate_mbit is not None
        rate = self.topology.rate_mbit
        for namespace, device in ((name, "eth0"), (self.hub, port)):
            run(
                "tc",
                "-n",
                namespace,
                "qdisc",
                "replace",
                "dev",
                device,
                "root",
                "tbf",
                "rate",
                f"{rate}mbit",
                "burst",
                str(burst_bytes(rate)),
                "latency",
                "20ms",
            )

    @staticmethod
    def _address(namespace: str, device: str, address: str) -> None:
        run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", device, "noprefixroute")
        run(
            "ip",
            "-n",
            namespace,
            "route",
            "add",
            f"{NETWORK}.0/24",
            "dev",
            device,
            "src",
            address,
            "congctl",
            "cubic",
        )

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", f"{self.hub_address} {os.uname().nodename}"]
        lines += [f"{self.address(node)} {name}" for node, name in enumerate(self.names)]
        for name in (self.hub, *self.names):
            folder = Path("/etc/netns") / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")

    def close(self) -> None:
        """Ends what runs inside, then removes the namespaces. Idempotent."""
        remove_namespaces([*self.names, self.hub])


def existing_namespaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def remove_namespaces(names: list[str]) -> None:
    """Kills every process of these namespaces and deletes them, in the order given."""
    present = [name for name in names if name in existing_namespaces()]
    for ending in (signal.SIGTERM, signal.SIGKILL):
        pids = [int(pid) for name in present for pid in run("ip", "netns", "pids", name).split()]
        for pid in pids:
            try:
                os.kill(pid, ending)
            except ProcessLookupError:
                continue
        if pids:
            time.sleep(0.3)
    for name in present:
        run("ip", "netns", "del", name)
    for name in names:
        shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def remove_stale() -> None:
    """Removes what a killed run left behind: namespaces with all processes inside, and control
    folders."""
    stale = [name for name in existing_namespaces() if of_a_dead_run(name)]
    if stale:
        remove_namespaces(stale)
    for folder in Path("/tmp").glob(f"{PREFIX}-*-*"):
        if of_a_dead_run(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def of_a_dead_run(name: str) -> bool:
    """Names are PREFIX-<pid of the run>-<something>."""
    parts = name.split("-")
    return parts[0] == PREFIX and len(parts) == 3 and not Path(f"/proc/{parts[1]}").exists()
