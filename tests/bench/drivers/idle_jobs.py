"""Jobs of one rank each, all in this process.

Argument: how many. Begins half as many pairs of jobs, whose two begin at once and end again, then
all one after the other. Prints {"pairs_ms": [...], "joins_ms": [...]}: how long each join took, of
a pair the later one. The last ones idle until standard input ends.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import ringd

#: Until what a join has set in motion is over.
PAUSE_S = 0.4


def begin(name: str) -> tuple[ringd.Context, float]:
    """Also how long the join took, in milliseconds."""
    began = time.perf_counter()
    context = ringd.Context(job_id=name, rank=0, size=1, local_rank=0, local_size=1)
    return context, 1e3 * (time.perf_counter() - began)


def main() -> None:
    count = int(sys.argv[1])
    pairs_ms, joins_ms, jobs = [], [], []
    with ThreadPoolExecutor(2) as pool:
        for number in range(count // 2):
            both = list(pool.map(begin, [f"first {number}", f"second {number}"]))
            pairs_ms.append(max(took for _, took in both))
            for context, _ in both:
                context.close()
            time.sleep(PAUSE_S)
    for number in range(count):
        context, took = begin(f"idle {number}")
        jobs.append(context)
        joins_ms.append(took)
        time.sleep(PAUSE_S)
    print(json.dumps({"pairs_ms": pairs_ms, "joins_ms": joins_ms}), flush=True)
    sys.stdin.read()
    for context in jobs:
        context.close()


main()
