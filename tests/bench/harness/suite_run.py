"""One run of one suite: sites, contestants, rows, time limit."""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Callable, Container
from typing import Any

from .contestants import Contestants
from .goals import BEFORE
from .machine import Probe, describe
from .pacing import Pace
from .peers.peer import Peer, Unavailable
from .peers.ringd import Ringd
from .report import SCHEMA, row_json, row_text
from .row import Row
from .runner import Runner
from .session import PeerError
from .site import Site, Topology, remove_stale
from .suites import host, idle, models, torch, wire

ROWS: dict[str, Callable[[], list[Row]]] = {
    "host": host.rows,
    "wire": wire.rows,
    "models": models.rows,
    "torch": torch.rows,
}
SUITES = [*ROWS, "idle"]

QUICK_LIMIT = 150.0
FULL_LIMIT = 25 * 60.0
# A replayed step takes a third of a second and more, and what is looked at are some microseconds of
# it: so many of them, in several starts.
STEPS = Pace(rounds=9, batch_seconds=1.0, row_seconds=120.0, starts=3)
PACES = {
    # (the row is on wires, quick)
    (False, True): Pace(rounds=4, batch_seconds=0.1, row_seconds=6.0),
    (False, False): Pace(rounds=11, batch_seconds=0.25, row_seconds=25.0),
    (True, True): Pace(rounds=3, batch_seconds=0.3, row_seconds=9.0),
    (True, False): Pace(rounds=5, batch_seconds=1.0, row_seconds=120.0),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    suite: str
    quick: bool
    pattern: str
    limit_seconds: float | None = None


class SuiteRun:
    """Collects the entries as they come, so that an interrupted run keeps what it has. One
    thread."""

    def __init__(
        self, options: Options, peers: dict[str, Peer], probe: Probe, say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._peers = peers
        self._probe = probe
        self._say = say
        self._started = time.monotonic()
        self._versions: dict[str, str] = {}
        self._machine = describe()
        self.entries: list[dict[str, Any]] = []
        self.skipped: list[str] = []

    def run(self) -> None:
        """Measures everything that was asked for and fits into the time."""
        remove_stale()
        if self._options.suite == "idle":
            self._run_idle()
            return
        rows = selected(self._options)
        for topology in dict.fromkeys(row.topology for row in rows):
            self._run_site(topology, [row for row in rows if row.topology == topology])

    def result(self) -> dict[str, Any]:
        """The whole run as JSON."""
        return {
            "schema": SCHEMA,
            "suite": self._options.suite,
            "quick": self._options.quick,
            "seconds": round(time.monotonic() - self._started, 1),
            "machine": dataclasses.asdict(self._machine),
            "versions": self._versions,
            "skipped_for_time": self.skipped,
            "rows": self.entries,
        }

    def _run_site(self, topology: Topology, rows: list[Row]) -> None:
        quick = self._options.quick
        of_steps = self._options.suite in ("models", "torch") and not quick
        pace = STEPS if of_steps else PACES[(topology.rate_mbit is not None, quick)]
        with Site(topology) as site:
            contestants = Contestants(site, self._peers, self._say)
            runner = Runner(site, contestants, self._probe, pace, self._say)
            try:
                for row in rows:
                    self._run_row(runner, row)
                    self._versions |= contestants.versions()
            finally:
                contestants.stop()

    def _run_row(self, runner: Runner, row: Row) -> None:
        limit = self._options.limit_seconds
        if limit is None:
            limit = QUICK_LIMIT if self._options.quick else FULL_LIMIT
        passed = time.monotonic() - self._started
        if passed > limit:
            self.skipped.append(row.name)
            self._say(f"{row.name}: skipped, {passed:.0f} s of {limit:.0f} s are used up")
            return
        self._say(f"{row.name}  [{passed:.0f} s]")
        entry = row_json(runner.measure(of_the_available(row, self._peers), self._options.quick))
        self.entries.append(entry)
        self._say(row_text(entry))

    def _run_idle(self) -> None:
        ringd = self._peers.get("ringd")
        if not isinstance(ringd, Ringd):
            self._say("this suite is about ringd alone, and it is not there")
            return
        seconds = 10.0 if self._options.quick else 60.0
        tool = ringd.control_tool
        self._run_plain(idle.TRAINERS, lambda site, found: idle.idle_node(site, found, seconds, self._say))
        self._run_plain(
            idle.MANY, lambda site, found: idle.many_jobs(site, found, ringd.package, seconds, self._say)
        )
        self._run_plain(idle.STEPPING, lambda site, found: idle.steady_steps(site, found, tool, self._say))

    def _run_plain(
        self, topology: Topology, measure: Callable[[Site, Contestants], list[dict[str, Any]]]
    ) -> None:
        """Rows that are no times."""
        with Site(topology) as site:
            contestants = Contestants(site, self._peers, self._say)
            try:
                found = measure(site, contestants)
            except (PeerError, Unavailable) as error:
                self._say(f"    {error}")
                return
            finally:
                contestants.stop()
        self.entries += found
        for entry in found:
            self._say(f"{entry['row']}\n{row_text(entry)}")


def of_the_available(row: Row, peers: Container[str]) -> Row:
    """The row with those contestants that are there."""

    def is_there(contestant: str) -> bool:
        return contestant.split(",")[0] in peers

    # Another build does what this one does; no goal is about it.
    everybody = {**row.ways, BEFORE: row.ways["ringd"]}
    ways = {name: ways for name, ways in everybody.items() if is_there(name)}
    references = {name: found for name, found in row.references.items() if is_there(name)}
    return dataclasses.replace(row, ways=ways, references=references)


def selected(options: Options) -> list[Row]:
    """The rows of a run: a pattern is a part of the name, or a shell pattern for all of it."""
    rows = [row for row in ROWS[options.suite]() if row.quick or not options.quick or options.pattern]
    pattern = options.pattern
    return [row for row in rows if not pattern or pattern in row.name or fnmatch.fnmatch(row.name, pattern)]
