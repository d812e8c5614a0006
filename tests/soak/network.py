"""Three network namespaces whose interfaces lead to one switch: node0, node1 and node2. Needs root.

node2 is the one that fails: its line is cut, its ringd killed. The jobs that must notice nothing
are on the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.integration.shaped_line import ip

PREFIX = "ringd-soak"
NETWORK = "10.81.0"
NODES = 3


class Network:
    """Ownership: owns its namespaces and every process inside; close() ends and removes all."""

    def __init__(self) -> None:
        self._switch = f"{PREFIX}-{os.getpid()}-switch"
        self._nodes = [f"{PREFIX}-{os.getpid()}-node{node}" for node in range(NODES)]
        try:
            for name in (self._switch, *self._nodes):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
            ip("-n", self._switch, "link", "set", "switch", "up")
            for node, name in enumerate(self._nodes):
                ends = ["eth0", "type", "veth", "peer", "name", f"port{node}", "netns", self._switch]
                ip("-n", name, "link", "add", *ends)
                ip("-n", self._switch, "link", "set", f"port{node}", "master", "switch", "up")
                ip("-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def address(node: int) -> str:
        return f"{NETWORK}.{node + 1}"

    def inside(self, node: int) -> list[str]:
        """What is put before a command to run it on this node; the pid stays."""
        return ["ip", "netns", "exec", self._nodes[node]]

    def cut(self, node: int) -> None:
        """From now on everything to and from this node is lost, and nobody is told."""
        ip("-n", self._switch, "link", "set", f"port{node}", "nomaster")

    def mend(self, node: int) -> None:
        """After cut."""
        ip("-n", self._switch, "link", "set", f"port{node}", "master", "switch")

    def unplug(self, node: int) -> None:
        """From now on the node's interface has no carrier."""
        ip("-n", self._switch, "link", "set", f"port{node}", "down")

    def plug(self, node: int) -> None:
        """After unplug."""
        ip("-n", self._switch, "link", "set", f"port{node}", "up")

    def close(self) -> None:
        remove_namespaces([*self._nodes, self._switch])


def processes_inside(name: str) -> list[int]:
    """The pids of a namespace."""
    done = subprocess.run(
        ["ip", "netns", "pids", name], capture_output=True, text=True, timeout=20, check=False
    )
    return [int(pid) for pid in done.stdout.split()]


def remove_namespaces(names: list[str]) -> None:
    """Kills every process of these namespaces and deletes them. Those that don't exist are passed
    over."""
    existing = [name for name in names if Path("/run/netns", name).exists()]
    pids = [pid for name in existing for pid in processes_inside(name)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if pids:
        time.sleep(0.2)
    for name in existing:
        ip("netns", "del", name, check=False)


def remove_stale() -> None:
    """Removes what a run left behind that was killed: its namespaces with all processes inside."""
    folder = Path("/run/netns")
    names = [entry.name for entry in folder.glob(f"{PREFIX}-*-*")] if folder.exists() else []
    remove_namespaces([name for name in names if not Path("/proc", name.split("-")[2]).exists()])
