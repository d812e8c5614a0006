"""What a row is to reach, clause by clause, judged by measurements of one run alone. Pure.

A clause whose measurements this run does not have is not judged, unless what it has shows already
that it is missed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from .floors import line_share

RINGD = "ringd"
# Another build of it.
BEFORE = "before"
# Installed on request only, and far behind: its absence leaves "the best peer" what it is. A clause
# that names it needs it all the same.
OPTIONAL_PEERS = frozenset({"horovod"})
EITHER = ("near", "far")
# What is behind by less is level: two copies of one build in one run differ by as much.
LEVEL = 0.001
# Processor time is known less well: idle time is counted in ticks.
PROCESSOR_LEVEL = 0.01


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A run's values that clauses are judged by. Times are in seconds, references among them."""

    times: Mapping[str, float]  # contestant -> time, in the state that stands for the row
    # The same in every state that was seen often enough.
    of_states: Mapping[str, Mapping[str, float]]
    floor_seconds: float
    elements: int  # of each rank, in one call
    reference_elements: Mapping[str, int]
    unable: frozenset[str] = (
        frozenset()
    )  # peers that said that they cannot do this work: nobody to compare with
    # contestant -> the machine's processor seconds in a call
    processor: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Of one clause. `met` is None where it could not be judged; `detail` has the figure, and the
    reason."""

    text: str
    met: bool | None
    value: float | None
    detail: str


class Clause(Protocol):
    """One condition of a goal."""

    @property
    def text(self) -> str:
        """The condition in words."""

    def judge(self, outcome: Outcome) -> Judgement:
        """Whether it holds."""


@dataclasses.dataclass(frozen=True)
class Ahead:
    """ringd is so many times as fast as the best of these peers, or level with that: below 1, it
    may be that much behind.

    With `either_state` that holds near and far, each by itself, and a run that saw only one of them
    does not judge. `besides` is what each call takes of everybody beside what was measured: of a
    replayed step the computing. With it the whole is compared.
    """

    text: str
    times: float
    of: tuple[str, ...]
    either_state: bool = False
    besides: float = 0.0  # seconds

    def judge(self, outcome: Outcome) -> Judgement:
        if not self.either_state:
            met, value, detail = self._compare(outcome.times, outcome.unable)
            return Judgement(self.text, met, value, detail)
        verdicts: list[bool | None] = []
        values: list[float] = []
        details: list[str] = []
        for state in EITHER:
            if state not in outcome.of_states:
                verdicts.append(None)
                details.append(f"{state} not seen often enough")
                continue
            met, value, detail = self._compare(outcome.of_states[state], outcome.unable)
            verdicts.append(met)
            values += [] if value is None else [value]
            details.append(f"{state} {detail}")
        return Judgement(self.text, all_hold(verdicts), min(values, default=None), ", ".join(details))

    def _compare(
        self, times: Mapping[str, float], unable: frozenset[str]
    ) -> tuple[bool | None, float | None, str]:
        present = [name for name in self.of if name in times]
        if RINGD not in times or not present:
            return None, None, f"no {' or '.join(self.of)}" if RINGD in times else "no ringd"
        best = min(times[name] for name in present) + self.besides
        own = times[RINGD] + self.besides
        value = best / own if own > 0 else None
        detail = figure(value) if value is not None else "nothing to wait for"
        missing = [name for name in self.of if name not in times and name not in unable]
        if len(self.of) > 1:
            missing = [name for name in missing if name not in OPTIONAL_PEERS]
        if best < self.times * own * (1 - LEVEL):
            return False, value, detail
        if missing:
            return None, value, f"{detail} without {' and '.join(missing)}"
        return True, value, detail


@dataclasses.dataclass(frozen=True)
class LineShare:
    """ringd uses that part of the line."""

    text: str
    share: float

    def judge(self, outcome: Outcome) -> Judgement:
        if RINGD not in outcome.times:
            return Judgement(self.text, None, None, "no ringd")
        value = line_share(outcome.times[RINGD], outcome.floor_seconds)
        return Judgement(self.text, value >= self.share, value, f"{100 * value:.1f} %")


@dataclasses.dataclass(frozen=True)
class AtMost:
    """ringd takes no longer."""

    text: str
    seconds: float

    def judge(self, outcome: Outcome) -> Judgement:
        if RINGD not in outcome.times:
            return Judgement(self.text, None, None, "no ringd")
        value = outcome.times[RINGD]
        return Judgement(self.text, value <= self.seconds, value, f"{figure(1e6 * value)} us")


@dataclasses.dataclass(frozen=True)
class ElementRate:
    """ringd reduces so many times the reference's elements per second."""

    text: str
    times: float
    reference: str

    def judge(self, outcome: Outcome) -> Judgement:
        slowdown = slowdown_beside(outcome, self.reference)
        if slowdown is None:
            return Judgement(self.text, None, None, f"no {self.reference}")
        value = outcome.elements / outcome.reference_elements[self.reference] / slowdown
        return Judgement(self.text, value >= self.times, value, figure(value))


@dataclasses.dataclass(frozen=True)
class Slowdown:
    """ringd takes at most so many times as long as the reference."""

    text: str
    most: float
    reference: str

    def judge(self, outcome: Outcome) -> Judgement:
        slowdown = slowdown_beside(outcome, self.reference)
        if slowdown is None:
            return Judgement(self.text, None, None, f"no {self.reference}")
        return Judgement(self.text, slowdown <= self.most, slowdown, figure(slowdown))


@dataclasses.dataclass(frozen=True)
class ProcessorTimeAtMost:
    """The machine spends no more processor time on a call of ringd than on one of that peer."""

    text: str
    peer: str

    def judge(self, outcome: Outcome) -> Judgement:
        own, other = outcome.processor.get(RINGD, 0.0), outcome.processor.get(self.peer, 0.0)
        if own <= 0 or other <= 0:
            return Judgement(self.text, None, None, f"no {self.peer if own > 0 else RINGD}")
        value = own / other
        return Judgement(self.text, value <= 1 + PROCESSOR_LEVEL, value, figure(value))


@dataclasses.dataclass(frozen=True)
class Beyond:
    """What ringd takes longer than the reference is at most that share of what the peer does."""

    text: str
    share: float
    peer: str
    reference: str

    def judge(self, outcome: Outcome) -> Judgement:
        missing = [name for name in (RINGD, self.peer, self.reference) if name not in outcome.times]
        if missing:
            return Judgement(self.text, None, None, f"no {' or '.join(missing)}")
        computing = outcome.times[self.reference]
        own, other = (max(0.0, outcome.times[name] - computing) for name in (RINGD, self.peer))
        if other <= 0:
            return Judgement(self.text, None, None, f"{self.peer} takes no longer than {self.reference}")
        return Judgement(self.text, own <= self.share * other, own / other, figure(own / other))


def slowdown_beside(outcome: Outcome, reference: str) -> float | None:
    """ringd's time over the reference's; None unless this run has both."""
    own, other = outcome.times.get(RINGD, 0.0), outcome.times.get(reference, 0.0)
    return own / other if own > 0 and other > 0 else None


def all_hold(verdicts: Sequence[bool | None]) -> bool | None:
    """One that is missed decides, then one that is not judged; None also where there is nothing to
    judge."""
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True


def figure(value: float) -> str:
    return f"{value:.3g}"
