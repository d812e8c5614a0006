"""Strangers at ringd's one port: what they send ends nothing, costs little, and keeps nobody else
out."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.processes import wait_until

SUMS = """
    from array import array

    import ringd

    with ringd.Context() as context:
        (number,) = context.register([ringd.TensorSpec("t", shape=(1000,))])
        data = array("f", [context.place.rank + 1]) * 1000
        address, _ = data.buffer_info()
        context.wait(context.submit(number, address, address))
        assert data.tolist() == [sum(range(1, context.place.size + 1))] * 1000
"""
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def hello_of_an_unknown_job() -> bytes:
    """A whole Hello, and 32 bytes in place of a proof (proto/door/README.md)."""
    head = b"RINGDOOR" + struct.pack("<HHI", 3, 1, 0)
    return head + os.urandom(64) + b"stranger".ljust(64, b"\0") + os.urandom(32)


def listening_ports(node: Node) -> set[tuple[str, int]]:
    """The TCP addresses on which the process listens."""
    done = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, timeout=20, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if f"pid={node.pid}," in line]
    return {(host, int(port)) for host, port in (line[3].rsplit(":", 1) for line in lines)}


def status(node: Node, name: str) -> int:
    """A number of /proc/PID/status."""
    with open(f"/proc/{node.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


@contextlib.contextmanager
def crowd(node: Node, words: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that have all said this."""
    host, port = node.peer_address.rsplit(":", 1)
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            with contextlib.suppress(OSError):  # hung up on already
                connection.sendall(words)
            connections.append(connection)
        yield connections


def test_ringd_has_one_port_for_everything(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    cluster.start_job(SUMS, [1, 1]).expect_success()
    for node in nodes:
        host, port = node.peer_address.rsplit(":", 1)
        assert listening_ports(node) == {(host, int(port))}


@pytest.mark.parametrize(
    "words",
    [
        struct.pack("<QIB", 1 << 56, 0xFFFFFFFF, 1),  # 13 bytes
        HTTP2 + bytes(500),
        b"RINGDOOR",
        b"",
        hello_of_an_unknown_job(),
    ],
    ids=["a huge length", "HTTP/2", "too little", "nothing", "unknown jobs"],
)
def test_a_crowd_of_strangers_costs_little_and_keeps_no_job_from_starting(
    cluster: Cluster, words: bytes
) -> None:
    nodes = cluster.start_nodes(2)
    cluster.start_job(SUMS, [1, 1]).expect_success()
    threads, opened = status(nodes[0], "Threads"), descriptors(nodes[0])
    memory = status(nodes[0], "VmRSS")
    with crowd(nodes[0], words, 1100):
        # The door has 256 places, and some connections that were hung up on may not be closed yet.
        wait_until(lambda: descriptors(nodes[0]) <= opened + 300, "descriptors are bounded")
        began = time.monotonic()
        cluster.start_job(SUMS, [1, 1]).expect_success()
        assert time.monotonic() - began < 40
        # gRPC's own come and go, a quarter of what one for each stranger would be.
        assert status(nodes[0], "Threads") <= threads + 64
        assert status(nodes[0], "VmRSS") - memory < 64 << 10
    wait_until(lambda: descriptors(nodes[0]) <= opened + 10, "all is closed again")


def test_the_rendezvous_may_be_given_by_any_name_of_its_ringd(cluster: Cluster) -> None:
    nodes = cluster.start_nodes(2)
    port = nodes[0].peer_address.rsplit(":", 1)[1]
    for name in ("localhost", "127.0.0.1"):
        environment = {"RINGD_RENDEZVOUS": f"{name}:{port}"}
        cluster.start_job(SUMS, [2, 1], environment=environment).expect_success()
