"""The connection over which steps end is kept open during the steps."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import start_trainers, wait_for_all
from tests.integration.shaped_line import ShapedLine
from tests.integration.two_ends import TwoEnds

# More than TCP's first window carries: ten segments of 1,448 bytes.
LONG = 9216
SHORT = 1000

# A sum of COUNT numbers twice a second, until told to end.
SUMS = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        count = int(os.environ["COUNT"])
        for step in range(200):
            result = trainer.submit("gradient", trainer.rank + step, count, call="submit_awaited").wait()
            assert result == trainer.size * (trainer.size - 1) / 2 + trainer.size * step, (step, result)
            if step == 8:
                say("summed")
            if step >= 8 and os.path.exists(os.environ["END"]):
                break
            time.sleep(0.5)


    run(main)
"""


class Ends(TwoEnds[ShapedLine]):
    def windows(self, end: int) -> list[tuple[int, int]]:
        """Of each connection to the other end: its congestion window in segments, and the ms since it sent anything."""
        command = [*self.line.inside(end), "ss", "-Htin", "dst", self.line.address(1 - end)]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        windows = []
        for line in shown.splitlines():
            if window := re.search(r"\bcwnd:(\d+)", line):
                # Not shown where it is 0.
                idle = re.search(r"\blastsnd:(\d+)", line)
                windows.append((int(window[1]), int(idle[1]) if idle else 0))
        return windows

    def keep_windows(self) -> None:
        """Of idle connections, in both namespaces."""
        for end in range(2):
            setting = "net.ipv4.tcp_slow_start_after_idle=0"
            command = [*self.line.inside(end), "sysctl", "-qw", setting]
            subprocess.run(command, capture_output=True, timeout=20, check=True)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    if os.geteuid() != 0:
        pytest.skip("makes network namespaces, which needs root")
    ends = Ends(tmp_path, ShapedLine(1000))
    try:
        yield ends
    finally:
        ends.end()


@contextlib.contextmanager
def running(cluster: Cluster, count: int) -> Iterator[list[dict[str, Any]]]:
    """The fast path of both nodes while a job is in its steady state, which then ends."""
    end = cluster.folder / "end"
    job = start_trainers(cluster, SUMS, [1, 1], environment={"COUNT": str(count), "END": str(end)})
    wait_for_all(job.ranks, "summed", 60)
    yield cluster.fast_paths(job)
    end.touch()
    job.expect_success()


def test_a_long_tail_finds_the_window_open(ends: Ends) -> None:
    with running(ends, LONG) as shown:
        for end, fast_path in enumerate(shown):
            assert int(fast_path["completed"]) > 0, fast_path
            # Once between two sums at least, all eight times.
            assert int(fast_path["padding_bytes"]) >= 8 * 4 * LONG, fast_path
            # One of the connections has the window that a sum needs, and is not idle for as long as between two sums.
            seen = []
            for _ in range(200):
                wide = [idle for window, idle in ends.windows(end) if window * 1448 >= 4 * LONG]
                seen.append(min(wide, default=10_000))
                time.sleep(0.01)
            assert statistics.quantiles(seen, n=10)[-1] < 200, seen


def test_short_ones_are_not_padded(ends: Ends) -> None:
    with running(ends, SHORT) as shown:
        for fast_path in shown:
            assert int(fast_path["completed"]) > 0, fast_path
            assert int(fast_path.get("padding_bytes", 0)) == 0, fast_path


def test_nothing_is_padded_where_the_kernel_keeps_windows(ends: Ends) -> None:
    ends.keep_windows()
    with running(ends, LONG) as shown:
        for fast_path in shown:
            assert int(fast_path["completed"]) > 0, fast_path
            assert int(fast_path.get("padding_bytes", 0)) == 0, fast_path
