"""A measured row as JSON and as lines for people."""

from __future__ import annotations

import statistics
from typing import Any

from .aggregate import Verdict, below_floor, headline, judgements, verdicts
from .floors import line_share
from .goals import RINGD, Judgement, all_hold
from .processor_time import ProcessorTime
from .row import Measured, Row

SCHEMA = 3
# The reference of a training that exchanges nothing.
ALONE = "alone"
VERDICTS = {True: "met", False: "MISSED", None: "not judged"}


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit in which such a time reads well, and how many of it make a second."""
    return ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)


def rounded(value: float) -> float:
    """Four digits: more would pretend."""
    return float(f"{value:.4g}")


def row_json(measured: Measured) -> dict[str, Any]:
    """The row as it is written to the JSON file."""
    row = measured.row
    verdict = headline(measured)
    times = verdict.times if verdict else {}
    clauses = judgements(measured)
    peers = [name for name in times if name != RINGD and name not in row.references]
    unit, scale = unit_of(min(times.values(), default=measured.floor_seconds))
    entry: dict[str, Any] = {
        "row": row.name,
        "metric": metric(row),
        "unit": unit,
        "ringd": rounded(times[RINGD] * scale) if RINGD in times else None,
        "peers": {name: rounded(times[name] * scale) for name in peers},
        "references": {name: rounded(times[name] * scale) for name in row.references if name in times},
        "best_peer": verdict.best_peer if verdict else None,
        "ratio": rounded(verdict.ratio) if verdict and verdict.ratio is not None else None,
        "floor": rounded(measured.floor_seconds * scale),
        "floor_kind": measured.floor_kind,
        "below_floor": below_floor(measured),
        "payload_bytes": row.payload,
        "goal": row.goal,
        "met": all_hold([clause.met for clause in clauses]),
        "clauses": [clause_json(clause) for clause in clauses],
        "notes": measured.notes,
    }
    if row.training:
        computing = times.get(ALONE, 0.0)
        entry["beyond"] = {
            name: rounded((value - computing) * scale)
            for name, value in times.items()
            if computing and name != ALONE
        }
    elif RINGD in times and measured.floor_seconds > 0:
        entry["floor_distance"] = rounded(times[RINGD] / measured.floor_seconds)
    if row.topology.rate_mbit is not None and not row.computing_seconds and not row.training:
        entry["line_share"] = {
            name: rounded(line_share(value, measured.floor_seconds)) for name, value in times.items()
        }
    if verdict:
        entry["best_way"] = verdict.best_way
        entry["state"] = verdict.state
        entry["processor"] = {
            name: processor_json(spent, row, scale) for name, spent in verdict.processor.items()
        }
        entry["states"] = {state: verdict_json(found, scale) for state, found in verdicts(measured).items()}
        entry["machine"] = machine_json(measured)
    return entry


def processor_json(spent: ProcessorTime, row: Row, scale: float) -> dict[str, float]:
    """Processor time of a call of all ranks, in the row's unit; that of the machine also for each
    byte of their input."""
    input_bytes = row.payload * row.topology.ranks
    return {
        "processes": rounded(spent.processes * scale),
        "machine": rounded(spent.machine * scale),
        "machine_ns_per_byte": rounded(spent.machine * 1e9 / input_bytes),
    }


def metric(row: Row) -> str:
    """What the row's values are."""
    if row.training:
        return "time of a step"
    if row.computing_seconds:
        return "time beyond computing"
    return "average time" if row.busy_neighbour else "time"


def verdict_json(verdict: Verdict, scale: float) -> dict[str, Any]:
    """All ways in one state of the machine."""
    return {
        "ways": {
            name: {way: rounded(value * scale) for way, value in ways.items()}
            for name, ways in verdict.ways.items()
        },
        "best_peer": verdict.best_peer,
        "ratio": rounded(verdict.ratio) if verdict.ratio is not None else None,
    }


def machine_json(measured: Measured) -> dict[str, Any]:
    """What the probes around the batches saw."""
    trips = [value for sample in measured.samples for value in (sample.before_ns, sample.after_ns)]
    return {
        "line_round_trip_ns": {
            "lowest": min(trips),
            "median": rounded(statistics.median(trips)),
            "highest": max(trips),
        },
        "load_average_highest": rounded(max(sample.load for sample in measured.samples)),
        "batches": len(measured.samples),
    }


def clause_json(clause: Judgement) -> dict[str, Any]:
    """`value` is a plain number: a ratio, a share of 1, or seconds."""
    value = rounded(clause.value) if clause.value is not None else None
    return {"clause": clause.text, "met": clause.met, "value": value, "detail": clause.detail}


def plain_row(name: str, metric: str, unit: str, value: float, goal: str, met: bool | None) -> dict[str, Any]:
    """A row that has no peers."""
    return {
        "row": name,
        "metric": metric,
        "unit": unit,
        "ringd": rounded(value),
        "peers": {},
        "best_peer": None,
        "ratio": None,
        "floor": None,
        "goal": goal,
        "met": met,
        "notes": [],
    }


def row_text(entry: dict[str, Any]) -> str:
    """The row for people, in a few lines."""
    unit = entry["unit"]
    lines = []
    shares = entry.get("line_share", {})
    ranked = sorted(
        {**entry["peers"], **entry.get("references", {})}.items(), key=lambda item: float(item[1])
    )
    for name, value in {RINGD: entry["ringd"], **dict(ranked)}.items():
        text = "not measured" if value is None else f"{value:,.4g} {unit}"
        if name in shares:
            text += f", {100 * shares[name]:.1f} % of the line"
        if name in entry.get("beyond", {}):
            text += f", {entry['beyond'][name]:,.4g} {unit} beyond computing"
        if spent := entry.get("processor", {}).get(name):
            text += f", processor {spent['machine']:,.4g} {unit} ({spent['processes']:,.4g} in its processes)"
        way = entry.get("best_way", {}).get(name)
        reference = ", for comparison" if name in entry.get("references", {}) else ""
        lines.append(f"    {name:24} {text}{reference}" + (f"  ({way})" if way else ""))
    if entry["floor"] is not None:
        distance = entry.get("floor_distance")
        text = f"    {'floor':24} {entry['floor']:,.4g} {unit} ({entry['floor_kind']})"
        lines.append(text + (f"; ringd takes {distance:.3g} times that" if distance else ""))
    if below := entry.get("below_floor"):
        lines.append(f"    {'':24} {' and '.join(below)} below {floor_owner(entry)} floor: it is none")
    if entry["ratio"] is not None:
        lines.append(f"    {'ratio':24} {entry['ratio']:.3g} to {entry['best_peer']}, state {entry['state']}")
    if entry["goal"]:
        lines.append(f"    {'goal':24} {goal_text(entry, VERDICTS)}")
    lines += [f"    note: {note}" for note in entry["notes"]]
    return "\n".join(lines)


def floor_owner(entry: dict[str, Any]) -> str:
    """Whose the floor is, for a sentence about it."""
    return "the line's" if entry.get("floor_kind") == "line" else "the probe's"


def goal_text(entry: dict[str, Any], words: dict[bool | None, str]) -> str:
    """The goal with its verdict, clause by clause with the figures where the entry has them."""
    clauses = entry.get("clauses")
    if not clauses:
        return f"{entry['goal']}: {words[entry['met']]}"
    return "; ".join(f"{one['clause']}: {words[one['met']]} ({one['detail']})" for one in clauses)
