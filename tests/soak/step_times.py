"""Whether a job's steps were as long as without an attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.soak.processors import Samples
from tests.soak.records import Step

#: The slowest step under attack may be so much slower than the slowest without.
LIMIT_S = 0.050
#: A change of a communicator under attack, with connections that are dialled for it at doors where
#: strangers crowd, and its first sum.
CHANGE_LIMIT_S = 1.0
#: The control's lateness is believed up to here: something that keeps it waiting for longer may be
#: ringd.
MOST_CONTROL_S = 0.3
#: If steps without any attack are this long there is nothing to compare with.
QUIET_LIMIT_S = 1.0


@dataclass(frozen=True)
class Distribution:
    """In seconds; `slowest` after what is excused, `slowest_raw` before."""

    steps: int
    median: float
    p99: float
    slowest: float
    slowest_raw: float
    #: Steps that were too long only before what is excused.
    excused: int
    #: What the slowest waited for; and the slowest before what is excused.
    why: str
    why_raw: str

    def __str__(self) -> str:
        ms = [f"{1000 * value:.1f}" for value in (self.median, self.p99, self.slowest, self.slowest_raw)]
        return (
            f"{self.steps} steps, ms: median {ms[0]}, p99 {ms[1]}, slowest {ms[2]}"
            f" ({ms[3]} with waits for processors), {self.excused} excused"
            + (f"; the slowest: {self.why}" if self.why else "")
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def distribution(steps: Sequence[Step], processors: Samples, job: str | None) -> Distribution:
    """Of `steps`, which are some, of this job."""
    raw = sorted(step.seconds for step in steps)
    median = raw[len(raw) // 2]
    slowest, why, why_raw, excused = 0.0, "", "", 0
    for step in steps:
        seconds = step.seconds
        excuse = None
        # Only slow ones are looked at closely: what is short needs no excuse.
        if seconds > median + LIMIT_S / 2:
            excuse = processors.excuse(step, job)
            seconds = max(0.0, seconds - excuse.seconds)
            if step.seconds == raw[-1]:
                why_raw = str(excuse)
            excused += step.seconds > median + LIMIT_S >= seconds
        if seconds > slowest:
            slowest = seconds
            why = "" if excuse is None else f"number {step.number}, {1000 * step.seconds:.0f} ms, {excuse}"
    p99 = raw[min(len(raw) - 1, len(raw) * 99 // 100)]
    return Distribution(len(raw), median, p99, slowest, raw[-1], excused, why, why_raw)


def complaint(quiet: Distribution, attacked: Distribution, control_s: float) -> str | None:
    """What is wrong with the steps under attack; None: nothing.

    control_s: by how much the control's slowest step was slower. It does not use ringd, so this is
    what the measure itself is off by.
    """
    if quiet.slowest > QUIET_LIMIT_S:
        return f"undisturbed steps are too long to compare with: {quiet}"
    limit = LIMIT_S + min(max(0.0, control_s), MOST_CONTROL_S)
    if attacked.slowest <= quiet.slowest + limit:
        return None
    late = 1000 * (attacked.slowest - quiet.slowest)
    return (
        f"the slowest step took {late:.0f} ms longer than undisturbed, allowed are {1000 * limit:.0f};"
        f" undisturbed: {quiet}; attacked: {attacked}"
    )


def slow_change(changes: Sequence[Step], processors: Samples, job: str) -> str | None:
    """What is wrong with how long changes of a communicator took under attack; None: nothing."""
    for change in changes:
        if change.seconds <= CHANGE_LIMIT_S:
            continue
        excuse = processors.excuse(change, job)
        if change.seconds - excuse.seconds > CHANGE_LIMIT_S:
            return (
                f"change {change.number} of the communicator took {change.seconds:.2f} s, allowed are"
                f" {CHANGE_LIMIT_S:.2f}; {excuse}"
            )
    return None
