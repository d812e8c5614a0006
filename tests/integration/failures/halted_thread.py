"""Stops one thread of another process, which signals can't: they stop all of them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# <sys/ptrace.h>, and __WALL of <linux/wait.h>
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000


def find_thread(pid: int, name: str) -> int:
    """The thread of this name."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise AssertionError(f"process {pid} has no thread '{name}'")


@contextmanager
def halted_thread(pid: int, name: str) -> Iterator[None]:
    """Within, the thread of this name stands still; the process is one of ours."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    thread = find_thread(pid, name)
    for request in (SEIZE, INTERRUPT):
        assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        libc.ptrace(DETACH, thread, None, None)
