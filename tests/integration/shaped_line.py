"""Two network namespaces joined by one line of a known speed. Needs root."""

from __future__ import annotations

import os
import subprocess

NETWORK = "10.79.0"
SECOND_NETWORK = "10.79.1"
# The kernel keeps two segments of a connection in the interface's queue, where nothing overtakes
# them: a whole chunk if they are as long as they can be, 64 KiB. Half of that leaves whoever
# measures in chunks some room.
SEGMENT_BYTES = 32 * 1024


def ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0 or not check, f"ip {' '.join(arguments)}: {done.stderr.strip()}"


def shape(namespace: str, interface: str, rate_mbit: int) -> None:
    """What leaves by the interface passes a token bucket."""
    bucket = f"root tbf rate {rate_mbit}mbit burst 131072 latency 50ms"
    command = ["tc", "-n", namespace, "qdisc", "replace", "dev", interface, *bucket.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr


def configure(namespace: str, address: str, rate_mbit: int, interface: str = "eth0") -> None:
    """Gives the namespace's interface this address in a network of 256, and a token bucket for what
    leaves by it."""
    ip("-n", namespace, "link", "set", interface, "gso_max_size", str(SEGMENT_BYTES), "up")
    ip("-n", namespace, "addr", "add", f"{address}/24", "dev", interface, "noprefixroute")
    # The machine's default congestion control is not the same everywhere.
    network = address.rpartition(".")[0] + ".0/24"
    ip("-n", namespace, "route", "add", network, "dev", interface, "src", address, "congctl", "cubic")
    shape(namespace, interface, rate_mbit)


class ShapedLine:
    """A pair of veth interfaces with a token bucket at either end.

    Ownership: owns its namespaces; close() removes them. What runs inside must have ended.
    """

    def __init__(self, rate_mbit: int) -> None:
        self.rate_mbit = rate_mbit
        self._names = [f"ringd-line-{os.getpid()}-{end}" for end in range(2)]
        try:
            for name in self._names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            first, second = self._names
            ip("-n", first, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second)
            for end, name in enumerate(self._names):
                configure(name, self.address(end), rate_mbit)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def address(end: int) -> str:
        return f"{NETWORK}.{end + 1}"

    def inside(self, end: int) -> list[str]:
        """What is put before a command to run it at this end."""
        return ["ip", "netns", "exec", self._names[end]]

    def set_rate(self, rate_mbit: int) -> None:
        """From now on; connections stay."""
        self.rate_mbit = rate_mbit
        for name in self._names:
            shape(name, "eth0", rate_mbit)

    def close(self) -> None:
        for name in self._names:
            ip("netns", "del", name, check=False)


class TwoLines(ShapedLine):
    """A second such line between the same two ends: eth1, in a network of its own."""

    def __init__(self, rate_mbit: int) -> None:
        super().__init__(rate_mbit)
        try:
            first, second = self._names
            ip("-n", first, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", second)
            for end, name in enumerate(self._names):
                configure(name, f"{SECOND_NETWORK}.{end + 1}", rate_mbit, "eth1")
        except BaseException:
            self.close()
            raise

    def sent_bytes(self, end: int, interface: str) -> int:
        """What has left by the interface since it was made, as the kernel counts."""
        counter = f"/sys/class/net/{interface}/statistics/tx_bytes"
        command = [*self.inside(end), "cat", counter]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout)

    def cut_second(self) -> None:
        """Nothing that is sent by the second line arrives any more; neither end is told."""
        for end, name in enumerate(self._names):
            # To a station that is not there.
            other = f"{SECOND_NETWORK}.{2 - end}"
            ip("-n", name, "neigh", "replace", other, "lladdr", "02:00:00:00:00:01", "dev", "eth1")
