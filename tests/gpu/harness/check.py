"""What a check is, and how one is run: for a limited time, with a result whatever happens."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from tests.gpu.harness.site import Site

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
LOG_CHARACTERS = 20_000
#: No check is begun with less.
LEAST_SECONDS = 5.0


class NotHere(Exception):
    """The check can't be made on this machine; the text says why."""


class OutOfTime(Exception):
    """A check has taken longer than it may."""


@dataclass(frozen=True)
class Check:
    """`make` returns lines of what it has seen, and raises whatever is wrong."""

    name: str
    tries: str
    make: Callable[[Site], Findings]
    limit_s: float


@dataclass
class Findings:
    """What a check has found besides that it passed."""

    facts: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Outcome:
    name: str
    status: str
    seconds: float = 0.0
    #: Why it failed, or was not run.
    reason: str = ""
    facts: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    #: Whether it was not run for a reason that says something against the run, not of the machine.
    spoils: bool = False


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the main thread after so long."""

    def expire(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"took more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(check: Check, site: Site, end: float) -> Outcome:
    """Makes the check; it has until `end` (of the monotonic clock) at most. Never raises but for an
    interrupt."""
    begin = time.monotonic()
    left = end - begin
    if left < LEAST_SECONDS:
        return Outcome(check.name, NOT_RUN, reason="no time was left (--limit)", spoils=True)
    try:
        with limited(min(check.limit_s, left)):
            found = check.make(site)
    except NotHere as reason:
        return Outcome(check.name, NOT_RUN, time.monotonic() - begin, str(reason))
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        first, _, rest = text.partition("\n")
        return Outcome(
            check.name,
            FAILED,
            time.monotonic() - begin,
            first.removeprefix("AssertionError: "),
            log=f"{rest}\n{notes}".strip()[-LOG_CHARACTERS:],
        )
    return Outcome(check.name, PASSED, time.monotonic() - begin, facts=found.facts, figures=found.figures)
