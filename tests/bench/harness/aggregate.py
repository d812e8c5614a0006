"""From batches to one value for each contestant. Pure.

Like is compared with like: values come from one state of the machine, the one in which the row has
most complete data; only when no state has enough of every contestant are all batches taken together
("all").
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable

from .goals import BEFORE, EITHER, RINGD, Judgement, Outcome
from .machine import STATES, state_of
from .processor_time import ProcessorTime
from .row import Measured, Sample

# A state with fewer calls of a contestant's best way says little: of long calls a row has a few in
# all.
LEAST_CALLS = 10


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A row's outcome in one state of the machine. Times are in seconds: medians, but averages
    beside a busy neighbour, as only some calls wait for its turn to end, and a median knows nothing
    of them."""

    state: str
    ways: dict[str, dict[str, float]]  # contestant -> way -> time
    times: dict[str, float]  # contestant or reference -> time of its best way
    best_way: dict[str, str]
    best_peer: str | None
    ratio: float | None  # best peer's time over ringd's: above 1, ringd is faster
    processor: dict[str, ProcessorTime]  # of a call in that best way


def verdicts(measured: Measured) -> dict[str, Verdict]:
    """One verdict for each state that was seen, and "all" over everything."""
    by_state: dict[str, list[Sample]] = defaultdict(list)
    for sample in measured.samples:
        by_state[state_of(sample.before_ns, sample.after_ns)].append(sample)
    found = {state: judge(state, by_state[state], measured) for state in STATES if by_state[state]}
    if measured.samples:
        found["all"] = judge("all", measured.samples, measured)
    return found


def headline(measured: Measured) -> Verdict | None:
    """The verdict that stands for the row: of the states in which every contestant was measured
    often enough the one with most batches, else all batches together."""
    complete = often_enough(measured)
    if not complete:
        return verdicts(measured).get("all")
    batches: dict[str, int] = defaultdict(int)
    for sample in measured.samples:
        batches[state_of(sample.before_ns, sample.after_ns)] += 1
    return complete[max(complete, key=lambda state: batches[state])]


def often_enough(measured: Measured) -> dict[str, Verdict]:
    """The states, near and far, in which every contestant was measured often enough."""
    found = verdicts(measured)
    calls: dict[tuple[str, str, str], int] = defaultdict(int)
    for sample in measured.samples:
        calls[state_of(sample.before_ns, sample.after_ns), sample.contestant, sample.way] += len(
            sample.seconds
        )

    def has_enough(state: str) -> bool:
        best = found[state].best_way
        return all(
            contestant in best and calls[state, contestant, best[contestant]] >= LEAST_CALLS
            for contestant in found["all"].times
        )

    return {state: found[state] for state in EITHER if state in found and has_enough(state)}


def judge(state: str, samples: Iterable[Sample], measured: Measured) -> Verdict:
    """Medians of these batches (or averages), the best way of each contestant, and the ratio."""
    samples = list(samples)
    pooled: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    computing = measured.row.computing_seconds
    typical = statistics.fmean if measured.row.busy_neighbour else statistics.median
    for sample in samples:
        pooled[sample.contestant][sample.way] += [max(0.0, value - computing) for value in sample.seconds]
    ways = {
        contestant: {way: typical(values) for way, values in of_way.items() if values}
        for contestant, of_way in pooled.items()
    }
    best_way = {contestant: min(of_way, key=lambda way: of_way[way]) for contestant, of_way in ways.items()}
    times = {contestant: ways[contestant][way] for contestant, way in best_way.items()}
    no_peers = {RINGD, *measured.row.references}
    peers = {contestant: time for contestant, time in times.items() if contestant not in no_peers}
    # Another build of ringd is compared with where there is nobody else.
    peers = {contestant: time for contestant, time in peers.items() if contestant != BEFORE} or peers
    best_peer = min(peers, key=lambda contestant: peers[contestant]) if peers else None
    ratio = None
    if best_peer is not None and times.get(RINGD, 0.0) > 0.0:
        ratio = peers[best_peer] / times[RINGD]
    return Verdict(state, ways, times, best_way, best_peer, ratio, processor_times(samples, best_way))


def processor_times(samples: list[Sample], best_way: dict[str, str]) -> dict[str, ProcessorTime]:
    """Averages: idle time is known by the tick, longer than many a batch takes."""
    spent: dict[str, list[ProcessorTime]] = defaultdict(list)
    for sample in samples:
        if sample.processor is not None and sample.way == best_way[sample.contestant]:
            spent[sample.contestant].append(sample.processor)
    return {name: sum(times, ProcessorTime()) / len(times) for name, times in spent.items()}


def judgements(measured: Measured) -> list[Judgement]:
    """Every clause of the row's goal, judged by this run."""
    row = measured.row
    verdict = headline(measured)
    times = verdict.times if verdict else {}
    outcome = Outcome(
        times=times,
        of_states={state: found.times for state, found in often_enough(measured).items()},
        floor_seconds=measured.floor_seconds,
        elements=row.tensors.elements,
        processor={name: spent.machine for name, spent in verdict.processor.items()} if verdict else {},
        reference_elements={
            name: (reference.tensors or row.tensors).elements for name, reference in row.references.items()
        },
        unable=frozenset(measured.unable - measured.broken),
    )
    return [clause.judge(outcome) for clause in row.goals]


def below_floor(measured: Measured) -> list[str]:
    """Contestants whose value is below what the row calls its floor: then the floor is none."""
    verdict = headline(measured)
    times = verdict.times if verdict else {}
    return sorted(
        name
        for name, time in times.items()
        if name not in measured.row.references and time < measured.floor_seconds
    )
