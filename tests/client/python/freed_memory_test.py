"""What a training step frees stays with the process, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ringd.torch import freed_memory

# Frees 60 MiB in blocks as gradients are, and counts the pages that the next round has to map.
ROUNDS = """
import ctypes, os, resource
import ringd.torch as hvd

hvd.init()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


def step():
    blocks = [libc.malloc(4 << 20) for _ in range(15)]
    for block in blocks:
        ctypes.memset(block, 1, 4 << 20)
    for block in reversed(blocks):
        libc.free(ctypes.c_void_p(block))


for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def mapped_pages(**settings: str) -> int:
    """In a step of a program that has called init(), alone."""
    environment = {"PATH": os.environ["PATH"], **settings}
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout.splitlines()[-1])


def test_init_keeps_what_a_step_frees() -> None:
    assert mapped_pages() < 100
    assert mapped_pages(RINGD_KEEP_FREED_MEMORY="0") > 10_000


@pytest.mark.parametrize(
    "environment",
    [
        {"RINGD_KEEP_FREED_MEMORY": "0"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"MALLOC_TOP_PAD_": "0"},
        {"MALLOC_MMAP_MAX_": "0"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
    ],
)
def test_settings_of_the_user_go_first(environment: dict[str, str]) -> None:
    assert not freed_memory.keep(environment)


def test_other_tunables_are_no_settings_of_malloc() -> None:
    assert freed_memory.keep({"GLIBC_TUNABLES": "glibc.pthread.rseq=0"})
