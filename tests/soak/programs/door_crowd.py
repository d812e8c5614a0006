"""A stranger at the doors of ringds: SECONDS SEED ADDRESS... Says rubbish, nothing, too little, or
the Hello of a job that nobody knows, over several hundred connections at a time. Standard library
alone: it runs as another user, in another namespace. The Hello is that of proto/door/README.md."""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import sys
import time
from collections import Counter

AT_ONCE = 400
HELLO_BYTES, CHALLENGE_BYTES, PROOF_BYTES = 144, 112, 32
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
KINDS = (
    "nothing",
    "rubbish",
    "http2",
    "half a hello",
    "unknown job",
    "unknown wire",
    "wrong proof",
    "huge length",
)


def hello(purpose: int, subject: bytes) -> bytes:
    """144 bytes."""
    head = b"RINGDOOR" + struct.pack("<HHI", 3, purpose, 0)
    return head + subject.ljust(32, b"\0") + os.urandom(32) + b"stranger".ljust(64, b"\0")


class Caller:
    """One connection."""

    def __init__(self, kind: str, address: tuple[str, int], chance: random.Random) -> None:
        self.kind = kind
        self.until = time.monotonic() + chance.uniform(0.2, 8.0)
        self.socket = socket.socket()
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.socket.connect(address)
        self._words = self._first_words(chance)

    def _first_words(self, chance: random.Random) -> bytes:
        purpose = {"unknown wire": chance.choice((2, 3))}.get(self.kind, 1)
        whole = hello(purpose, os.urandom(20 if purpose > 1 else 32))
        return {
            "nothing": b"",
            "rubbish": os.urandom(chance.randrange(1, 2000)),
            "http2": HTTP2 + os.urandom(chance.randrange(0, 500)),
            "half a hello": whole[: chance.randrange(1, HELLO_BYTES)],
            # What a transport would take for a message of 2^56 bytes.
            "huge length": struct.pack("<QIB", 1 << 56, 0xFFFFFFFF, 1),
        }.get(self.kind, whole + os.urandom(PROOF_BYTES))

    def say(self) -> None:
        """All at once; whatever comes back is read and forgotten."""
        if self._words:
            self.socket.send(self._words)
            self._words = b""

    def hear(self) -> bool:
        """False: hung up on."""
        return bool(self.socket.recv(4096))


def main() -> int:
    """Prints what it has come to."""
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    addresses = [(host, int(port)) for host, port in (text.rsplit(":", 1) for text in sys.argv[3:])]
    os.nice(5)
    chance = random.Random(seed)
    count: Counter[str] = Counter()
    selector = selectors.DefaultSelector()
    callers: set[Caller] = set()
    end = time.monotonic() + seconds

    def drop(caller: Caller, why: str) -> None:
        count[why] += 1
        callers.discard(caller)
        selector.unregister(caller.socket)
        caller.socket.close()

    while time.monotonic() < end:
        while len(callers) < AT_ONCE:
            caller = Caller(chance.choice(KINDS), chance.choice(addresses), chance)
            callers.add(caller)
            count["connections"] += 1
            selector.register(caller.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, caller)
        for key, events in selector.select(0.05):
            try:
                if events & selectors.EVENT_WRITE:
                    key.data.say()
                    selector.modify(key.data.socket, selectors.EVENT_READ, key.data)
                if events & selectors.EVENT_READ and not key.data.hear():
                    drop(key.data, "hung up on")
            except OSError:
                drop(key.data, "broken off")
        for caller in [caller for caller in callers if caller.until < time.monotonic()]:
            drop(caller, "gone by themselves")
    for caller in list(callers):
        drop(caller, "left at the end")
    print("did:", ", ".join(f"{number} {what}" for what, number in count.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
