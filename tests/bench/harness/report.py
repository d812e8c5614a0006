"""A measured row as JSON and as lines for people."""

from __future__ import annotations

import statistics
from typing import Any

from .aggregate import RINGD, Verdict, headline, verdicts
from .floors import line_share
from .row import Measured, Row

SCHEMA = 1


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
    unit, scale = unit_of(min(times.values(), default=measured.floor_seconds))
    entry: dict[str, Any] = {
        "row": row.name,
        "metric": "time beyond computing" if row.computing_seconds else "time",
        "unit": unit,
        "ringd": rounded(times[RINGD] * scale) if RINGD in times else None,
        "peers": {name: rounded(value * scale) for name, value in times.items() if name != RINGD},
        "best_peer": verdict.best_peer if verdict else None,
        "ratio": rounded(verdict.ratio) if verdict and verdict.ratio is not None else None,
        "floor": rounded(measured.floor_seconds * scale),
        "floor_kind": measured.floor_kind,
        "payload_bytes": row.payload,
        "goal": row.goal,
        "met": goal_met(row, verdict, measured.floor_seconds),
        "notes": measured.notes,
    }
    if RINGD in times and measured.floor_seconds > 0:
        entry["floor_distance"] = rounded(times[RINGD] / measured.floor_seconds)
    if row.topology.rate_mbit is not None and not row.computing_seconds:
        entry["line_share"] = {
            name: rounded(line_share(value, measured.floor_seconds)) for name, value in times.items()
        }
    if verdict:
        entry["best_way"] = verdict.best_way
        entry["state"] = verdict.state
        entry["states"] = {state: verdict_json(found, scale) for state, found in verdicts(measured).items()}
        entry["machine"] = machine_json(measured)
    return entry


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


def goal_met(row: Row, verdict: Verdict | None, floor_seconds: float) -> bool | None:
    """Whether all of the row's goals hold; None where it has none or was not measured."""
    if verdict is None or RINGD not in verdict.times:
        return None
    time = verdict.times[RINGD]
    checks = []
    if row.goal_ratio is not None and verdict.ratio is not None:
        checks.append(verdict.ratio >= row.goal_ratio)
    if row.goal_line_share is not None:
        checks.append(line_share(time, floor_seconds) >= row.goal_line_share)
    if row.goal_seconds is not None:
        checks.append(time <= row.goal_seconds)
    return all(checks) if checks else None


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
    values = {RINGD: entry["ringd"], **dict(sorted(entry["peers"].items(), key=lambda item: item[1]))}
    for name, value in values.items():
        text = "not measured" if value is None else f"{value:,.4g} {unit}"
        if name in shares:
            text += f", {100 * shares[name]:.1f} % of the line"
        way = entry.get("best_way", {}).get(name)
        lines.append(f"    {name:24} {text}" + (f"  ({way})" if way else ""))
    if entry["floor"] is not None:
        distance = entry.get("floor_distance")
        text = f"    {'floor':24} {entry['floor']:,.4g} {unit} ({entry['floor_kind']})"
        lines.append(text + (f"; ringd takes {distance:.3g} times that" if distance else ""))
    if entry["ratio"] is not None:
        lines.append(f"    {'ratio':24} {entry['ratio']:.3g} to {entry['best_peer']}, state {entry['state']}")
    if entry["goal"]:
        verdict = {True: "met", False: "MISSED", None: "not judged"}[entry["met"]]
        lines.append(f"    {'goal':24} {entry['goal']}: {verdict}")
    lines += [f"    note: {note}" for note in entry["notes"]]
    return "\n".join(lines)
