"""Names for operations that the program gives none."""

from __future__ import annotations

import itertools
import threading


class AutomaticNames:
    """Names that come out the same on all ranks, if all call in the same order.

    Operations are matched by name, and among those of one name by order; so the k-th unnamed
    operation of a kind has to get the same name everywhere. A counter gives that. It starts again
    at `CYCLE`: two operations that share a name for that reason are still matched in order, and
    neither ringd nor this process has to remember ever more names.

    Not by what is in flight: whether an operation has ended when the next begins may differ between
    ranks.

    Thread safety: any thread; but then only the program's own order can make names agree, so
    threads should name what they submit.
    """

    CYCLE = 1024

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, itertools.cycle[int]] = {}

    def next(self, kind: str) -> str:
        with self._lock:
            counter = self._counters.get(kind)
            if counter is None:
                counter = self._counters[kind] = itertools.cycle(range(self.CYCLE))
            return f"{kind}.noname.{next(counter)}"
