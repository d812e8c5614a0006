"""What makes a run shorter on a machine without persistence mode. No setting of the GPU's is
changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def kept_initialised(devices: Path = Path("/dev")) -> Iterator[list[Path]]:
    """The GPUs' files stay open meanwhile: else each GPU is initialised anew for the first process
    that uses it, which takes seconds. Gives those that could be opened; none is no error."""
    with contextlib.ExitStack() as opened:
        held = []
        for file in [*sorted(devices.glob("nvidia[0-9]*")), devices / "nvidiactl"]:
            with contextlib.suppress(OSError):
                opened.callback(os.close, os.open(file, os.O_RDWR | os.O_CLOEXEC))
                held.append(file)
        yield held


def read_through(files: Iterable[Path]) -> None:
    """So that the kernel has them in memory; one that can't be read is left out."""
    for file in files:
        with contextlib.suppress(OSError), file.open("rb", buffering=0) as content:
            while content.read(CHUNK_BYTES):
                pass
