"""Network namespaces in two racks, whose switches are joined by one slow line. Needs root."""

from __future__ import annotations

import os

from tests.integration.shaped_line import SEGMENT_BYTES, configure, ip, shape

NETWORK = "10.80.0"


class Racks:
    """Each node's interface leads to the bridge of its rack: node i's to that of rack i % 2.

    Lines are token buckets at either end. Ownership: owns its namespaces; close() removes them.
    What runs inside must have ended.
    """

    def __init__(self, node_count: int, node_mbit: int, between_mbit: int) -> None:
        self._nodes = [f"ringd-rack-{os.getpid()}-{node}" for node in range(node_count)]
        self._switches = f"ringd-rack-{os.getpid()}-switches"
        try:
            for name in (self._switches, *self._nodes):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            for bridge in ("rack0", "rack1"):
                ip("-n", self._switches, "link", "add", bridge, "type", "bridge")
                ip("-n", self._switches, "link", "set", bridge, "up")
            ip("-n", self._switches, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
            for rack in range(2):
                self._plug(f"up{rack}", rack, between_mbit)
            for node, name in enumerate(self._nodes):
                port = f"port{node}"
                ends = ["eth0", "type", "veth", "peer", "name", port, "netns", self._switches]
                ip("-n", name, "link", "add", *ends)
                self._plug(port, node % 2, node_mbit)
                configure(name, self.address(node), node_mbit)
        except BaseException:
            self.close()
            raise

    def _plug(self, interface: str, rack: int, rate_mbit: int) -> None:
        settings = ["gso_max_size", str(SEGMENT_BYTES), "master", f"rack{rack}", "up"]
        ip("-n", self._switches, "link", "set", interface, *settings)
        shape(self._switches, interface, rate_mbit)

    @staticmethod
    def address(node: int) -> str:
        return f"{NETWORK}.{node + 1}"

    def inside(self, node: int) -> list[str]:
        """What is put before a command to run it at this node."""
        return ["ip", "netns", "exec", self._nodes[node]]

    def separate(self, one: int, other: int, silently: bool) -> None:
        """From now on nothing goes from `one` to the `other` node: an error there, or silently
        lost."""
        address = f"{self.address(other)}/32"
        if silently:
            # The bridge forgets what comes for a neighbour that does not exist.
            nowhere = [self.address(other), "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"]
            ip("-n", self._nodes[one], "neigh", "replace", *nowhere)
        else:
            ip("-n", self._nodes[one], "route", "add", "unreachable", address)

    def close(self) -> None:
        for name in (*self._nodes, self._switches):
            ip("netns", "del", name, check=False)
