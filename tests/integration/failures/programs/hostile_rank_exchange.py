"""Rank program: does to the descriptors and the memory that it shares with ringd what ATTACK says.

The layout of the segment is that of proto/rank_exchange/rank_exchange_segment.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import time

from trainer import Trainer, run, say

RINGD = 0xFFFFFFFF
CONTROL = 64
CLOSED = CONTROL + 8
DRIVER = CONTROL + 64
MEMBERS = CONTROL + 128
MEMBER_BYTES = 64
# Within a cell, behind its doorbell.
STATE = 64
CREATED = STATE + 32
GATHERS = 1
# What an eventfd counts at most.
FULL = (1 << 64) - 2
# Seconds.
LINGER = 600


def mapped(name: str) -> int:
    """Where a memfd lies."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            if name in line:
                return int(line.split("-", 1)[0], 16)
    raise AssertionError(f"{name} is not mapped")


def descriptors(pattern: str) -> list[int]:
    """Open ones whose link looks like that."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if re.search(pattern, os.readlink(f"/proc/self/fd/{entry}")):
                found.append(int(entry))
    return found


def sockets(family: socket.AddressFamily) -> list[socket.socket]:
    """The connected ones of this process."""
    found = []
    for fd in descriptors("^socket:"):
        one = socket.socket(fileno=os.dup(fd))
        with contextlib.suppress(OSError):
            if one.family == family and one.type == socket.SOCK_STREAM and one.getpeername() is not None:
                found.append(one)
    return found


def fill_eventfds() -> None:
    """Nothing can be added to them, and they wait for room."""
    for fd in descriptors("eventfd"):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
            (count,) = (int(line.split()[1], 16) for line in info if line.startswith("eventfd-count"))
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(fd, struct.pack("Q", FULL - count))
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)


def fill(one: socket.socket) -> None:
    """As long as the other end does not read it wants LINGER to be closed."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    with contextlib.suppress(OSError):
        while True:
            one.send(bytes(1 << 16), socket.MSG_DONTWAIT)


def word(offset: int) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(mapped("memfd:ringd-rank-exchange") + offset)


def block_writes(members: int) -> int:
    """As if a member drove, there is somebody to be woken for an operation that ringd gives up: by
    a full eventfd.

    How often that came in the middle of a turn of ringd's; never, where they share a processor.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    caught = 0
    driver = word(DRIVER)
    cell = MEMBERS + members * MEMBER_BYTES
    state = word(cell + STATE)
    created = ctypes.c_uint64.from_address(mapped("memfd:ringd-rank-exchange") + cell + CREATED)
    end = time.monotonic() + 4
    fill_eventfds()
    filled = time.monotonic()
    while time.monotonic() < end:
        # As if this node had hung up on itself: ringd does not empty the eventfd.
        word(CLOSED).value |= 1
        created.value = 1
        state.value = GATHERS
        for _ in range(20000):
            if driver.value == RINGD:
                driver.value = 1
                caught += 1
        # If it came too late, ringd has to take its turn again.
        driver.value = 0
        if time.monotonic() - filled > 0.5:
            fill_eventfds()
            filled = time.monotonic()
    return caught


def keep_driving(member: int) -> None:
    """Nobody else takes in what comes."""
    driver = word(DRIVER)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        driver.value = member + 1


def linger_in_lifeline(path: str) -> None:
    """Sends a socket that lingers to ringd, which does not receive it: it goes with the connection.

    It must not be closed here, where it would linger, too; a process that ends does not wait.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    full = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    fill(full)
    keeper = subprocess.Popen(["sleep", str(LINGER)], pass_fds=[other.fileno()], start_new_session=True)
    say("keeper", pid=keeper.pid)
    for one in sockets(socket.AF_UNIX):
        if one.getpeername() == path:
            # Kernels from 6.16 on let ringd refuse that.
            with contextlib.suppress(PermissionError):
                socket.send_fds(one, [b"x"], [full.fileno()])
                say("sent")
    full.detach()


def main() -> None:
    trainer = Trainer()
    attack = os.environ["ATTACK"]
    assert trainer.all_reduce_awaited("warm-up") == trainer.size
    if attack == "write":
        if trainer.rank == 0:
            say("attacked", caught=block_writes(1))
        time.sleep(2 if trainer.rank == 0 else 7)
        os._exit(0)
    if attack == "lifeline":
        linger_in_lifeline(os.environ["RINGD_SOCKET"])
        say("attacked")
        os._exit(0)
    # linger: what rank 0 leaves behind rank 1 does not take in.
    if trainer.rank == 1:
        keep_driving(0)
        say("stops", pid=os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    time.sleep(1.5)
    for one in sockets(socket.AF_INET):
        fill(one)
    say("attacked")
    os._exit(0)


run(main)
