"""Memory that a training step frees and the next one needs again."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

#: ``0``: glibc's malloc is left as it is.
VARIABLE = "RINGD_KEEP_FREED_MEMORY"

# Of <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# So much free memory may stay at the end of a heap, and no allocation below the second gets a
# mapping of its own, which it would give back. The second is the most that glibc takes.
_KEPT_BYTES = 1 << 30
_MAPPED_BYTES = 32 << 20

# Each says that the user has settings of his own.
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


def keep(environment: Mapping[str, str]) -> bool:
    """Has malloc keep up to 1 GiB of freed memory for the process, unless `environment` has
    settings for glibc's malloc or ``RINGD_KEEP_FREED_MEMORY=0``; whether it did.

    By itself malloc gives the kernel back what a step frees, some tens of MiB, and each page is
    cleared and mapped anew in the next step.
    """
    tunables = environment.get("GLIBC_TUNABLES", "")
    if environment.get(VARIABLE) == "0" or "glibc.malloc." in tunables:
        return False
    if any(name in environment for name in _SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # The first call ends glibc's own choice of both thresholds, so that both have to be set.
    return mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES) == 1 and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) == 1
