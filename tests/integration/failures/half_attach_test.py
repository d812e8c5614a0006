"""Thousands of connections that never become sessions."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct

import pytest

from tests.integration.cluster import Cluster, Node
from tests.integration.engines import await_standing_engines
from tests.integration.failures.undisturbed import UndisturbedJob
from tests.integration.processes import wait_until

pytestmark = pytest.mark.one_user

CONNECTIONS = 10_000
# Open at once: more than ringd lets wait for the rest of their handshake.
BATCH = 500
REQUEST = struct.pack("<4sI24x", b"RNGD", 1)
# What connections send before they are dropped; nearly all of them are half a handshake.
OPENINGS = [b"", b"RN", REQUEST[:8], REQUEST[:31], b"PRI ", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n\r\n"]
WHOLE_EVERY = 50


def descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def open_one(node: Node, number: int) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    # Blocks while ringd's backlog is full.
    try:
        connection.connect(str(node.socket))
        connection.sendall(REQUEST if number % WHOLE_EVERY == 0 else OPENINGS[number % len(OPENINGS)])
    except (BrokenPipeError, ConnectionResetError):
        connection.close()  # ringd was faster
        return None
    return connection


def test_ten_thousand_half_attaches_harm_nobody(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1, handshake_timeout="500ms")
    honest = UndisturbedJob(cluster, [2])
    await_standing_engines(node, 1)
    before = descriptors(node)
    for first in range(0, CONNECTIONS, BATCH):
        batch = [open_one(node, number) for number in range(first, first + BATCH)]
        assert honest.running()
        for connection in batch:
            if connection is not None:
                connection.close()
    wait_until(lambda: descriptors(node) <= before, f"ringd closes what it opened ({before})")
    status = json.loads(cluster.ringctl("status", "--json").stdout)
    assert status["sessions"] == 2
    late = UndisturbedJob(cluster, [2])  # new trainers are served as ever
    late.finish()
    honest.finish()


def test_connections_left_half_open_are_ended_by_ringd(cluster: Cluster) -> None:
    (node,) = cluster.start_nodes(1, handshake_timeout="300ms")
    connections = [open_one(node, number) for number in (1, 2, 3)]
    for connection in connections:
        assert connection is not None
        connection.settimeout(10)
        # A reset says that ringd had bytes left to read.
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b"", "ringd closes it after handshake_timeout"
        connection.close()
