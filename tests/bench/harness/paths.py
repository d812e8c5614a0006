"""Where things lie. Everything that a run installs or builds goes into one ignored folder."""

from __future__ import annotations

from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
REPOSITORY = BENCH.parent.parent
DRIVERS = BENCH / "drivers"
DATA = BENCH / "data"
CACHE = REPOSITORY / ".cache" / "bench"
PEERS = CACHE / "peers"
BINARIES = CACHE / "bin"
