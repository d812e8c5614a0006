"""The JSON of one or more runs as the Markdown table of README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .report import floor_owner, goal_text

VERDICTS = {True: "met", False: "**missed**", None: "not judged"}


def load(paths: list[Path]) -> list[dict[str, Any]]:
    """The runs, in the order given."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def render(runs: list[dict[str, Any]]) -> str:
    """One section for each suite and machine, with the rows of all its runs."""
    sections: dict[str, list[str]] = {}
    for run in runs:
        rows = sections.setdefault(heading(run), [])
        rows += [render_row(entry, when(run)) for entry in run["rows"]]
    return "\n\n".join("\n".join([title, *rows]) for title, rows in sections.items()) + "\n"


def heading(run: dict[str, Any]) -> str:
    machine = run["machine"]
    lines = [
        f"### Suite `{run['suite']}`",
        "",
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"Linux {machine['kernel']}.",
        "",
        "| row | unit | ringd | best peer | others | ratio | processor | floor | state | goal | measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join(lines)


def when(run: dict[str, Any]) -> str:
    return f"{run['machine']['date']}{', quick' if run['quick'] else ''}"


def render_row(entry: dict[str, Any], measured: str) -> str:
    best = entry["best_peer"]
    references = entry.get("references", {})
    others = sorted(
        ((name, value) for name, value in {**entry["peers"], **references}.items() if name != best),
        key=lambda item: float(item[1]),
    )
    cells = [
        entry["row"].split("/", 1)[1],
        entry["unit"],
        number(entry["ringd"]) + aside(entry, "ringd"),
        f"{best} {number(entry['peers'][best])}{aside(entry, best)}" if best else "",
        "; ".join(f"{name} {number(value)}{aside(entry, name)}" for name, value in others),
        number(entry["ratio"]),
        processor_cell(entry),
        floor_cell(entry),
        str(entry.get("state", "")),
        goal_cell(entry),
        measured,
    ]
    return "| " + " | ".join(cells) + " |"


def number(value: float | None) -> str:
    """At most three digits after the point, none where they say nothing."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def aside(entry: dict[str, Any], name: str) -> str:
    """A contestant's part of the line, or what its step takes beyond computing."""
    if name in (shares := entry.get("line_share", {})):
        return f" ({100 * shares[name]:.1f} %)"
    if name in (beyond := entry.get("beyond", {})):
        return f" ({number(beyond[name])} beyond computing)"
    return ""


def processor_cell(entry: dict[str, Any]) -> str:
    """The whole machine's processor time of a call, by contestant."""
    spent = entry.get("processor", {})
    return "; ".join(f"{name} {number(times['machine'])}" for name, times in spent.items())


def floor_cell(entry: dict[str, Any]) -> str:
    below = entry.get("below_floor")
    text = number(entry["floor"])
    return f"{text} ({' and '.join(below)} below {floor_owner(entry)} floor)" if below else text


def goal_cell(entry: dict[str, Any]) -> str:
    return goal_text(entry, VERDICTS) if entry["goal"] else ""
