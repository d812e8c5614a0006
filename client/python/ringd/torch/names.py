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
    # As many operations of one name may be in flight in a job on one node.
    LEAST_OF_GROUPS = 4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[tuple[str, int], itertools.cycle[int]] = {}

    def next(self, kind: str, members: int = 1) -> str:
        """`members`: how many names the caller makes of this one. With them the names of a kind and
        number of members are `CYCLE`, or a few for each member."""
        with self._lock:
            counter = self._counters.get((kind, members))
            if counter is None:
                cycle = max(self.LEAST_OF_GROUPS, self.CYCLE // max(members, 1))
                counter = self._counters[kind, members] = itertools.cycle(range(cycle))
            return f"{kind}.noname.{next(counter)}"
