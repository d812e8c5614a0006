"""Two network namespaces joined by a line whose ends are far apart. Needs root.

The kernel here delays no packets, so a program of ours does: frames go through its hands. As a
program, this file is it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque

from tests.integration.shaped_line import ip

NETWORK = "10.81.0"
# Few, long frames: each costs the program the same.
MTU = 16000
FRAME_BYTES = MTU + 14
TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
# What waits in front of the line; more is lost.
QUEUE_S = 0.05


class LongLine:
    """A pair of tap interfaces between which frames take `one_way_ms`, at `rate_mbit`. `send_bytes`
    is the most that the kernel there gives a connection for sending, in its own count.

    Ownership: owns its namespaces and the program; close() ends both. What runs inside must have
        ended.
    """

    def __init__(self, rate_mbit: int, one_way_ms: float, send_bytes: int) -> None:
        self._names = [f"ringd-long-{os.getpid()}-{end}" for end in range(2)]
        self._program: subprocess.Popen[bytes] | None = None
        taps: list[int] = []
        try:
            for end, name in enumerate(self._names):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                interface = f"rl{os.getpid() % 1000000}e{end}"
                taps.append(_open_tap(interface))
                ip("link", "set", interface, "netns", name)
                ip("-n", name, "link", "set", interface, "name", "eth0", "mtu", str(MTU), "up")
                ip("-n", name, "addr", "add", f"{self.address(end)}/24", "dev", "eth0", "noprefixroute")
                wmem = f"net.ipv4.tcp_wmem=4096 16384 {send_bytes}"
                ip("netns", "exec", name, "sysctl", "-qw", wmem)
                route = [f"{NETWORK}.0/24", "dev", "eth0", "src", self.address(end), "congctl", "cubic"]
                ip("-n", name, "route", "add", *route)
            values = [*map(str, taps), str(rate_mbit * 125_000), str(one_way_ms / 1000)]
            command = [sys.executable, "-m", "tests.integration.long_line", *values]
            self._program = subprocess.Popen(command, pass_fds=taps, stdin=subprocess.DEVNULL)
        except BaseException:
            self.close()
            raise
        finally:
            for tap in taps:
                os.close(tap)

    @staticmethod
    def address(end: int) -> str:
        return f"{NETWORK}.{end + 1}"

    def inside(self, end: int) -> list[str]:
        """What is put before a command to run it at this end."""
        return ["ip", "netns", "exec", self._names[end]]

    def close(self) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.wait(20)
        for name in self._names:
            ip("netns", "del", name, check=False)


def _open_tap(interface: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", interface.encode(), IFF_TAP | IFF_NO_PI))
    return tap


class _Way:
    """One direction: a queue in front of the line, and what is on the line."""

    def __init__(self, source: int, sink: int, bytes_per_second: float, delay_s: float) -> None:
        self.source = source
        self._sink = sink
        self._bytes_per_second = bytes_per_second
        self._delay_s = delay_s
        self._free_at = 0.0
        self._frames: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        """Takes in what has been sent."""
        while True:
            try:
                frame = os.read(self.source, FRAME_BYTES)
            except BlockingIOError:
                return
            now = time.monotonic()
            begins = max(now, self._free_at)
            if begins - now > QUEUE_S:
                continue
            self._free_at = begins + len(frame) / self._bytes_per_second
            self._frames.append((self._free_at + self._delay_s, frame))

    def deliver(self) -> float:
        """Hands over what has arrived; how long until the next does, in seconds."""
        while self._frames:
            wait = self._frames[0][0] - time.monotonic()
            if wait > 0:
                return wait
            frame = self._frames.popleft()[1]
            try:
                os.write(self._sink, frame)
            except OSError:
                continue  # the other end is down, or its queue is full: lost
        return 1.0


def main() -> None:
    one, other = int(sys.argv[1]), int(sys.argv[2])
    rate, delay_s = float(sys.argv[3]), float(sys.argv[4])
    ways = [_Way(one, other, rate, delay_s), _Way(other, one, rate, delay_s)]
    while True:
        readable, _, _ = select.select([one, other], [], [], min(way.deliver() for way in ways))
        for way in ways:
            if way.source in readable:
                way.take()


if __name__ == "__main__":
    main()
