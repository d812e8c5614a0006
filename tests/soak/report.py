"""The run in words, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.soak.conductor import Soak
from tests.soak.journal import Journal


def as_dict(soak: Soak, seed: int) -> dict[str, object]:
    """What --json writes."""
    return {
        "seed": seed,
        "findings": [vars(finding) for finding in soak.findings],
        "attacks": [
            {
                "name": result.name,
                "seconds": round(result.seconds, 1),
                "events": result.events,
                "newcomers": result.newcomers,
                "slowest_newcomer_s": round(result.slowest_newcomer_s, 3),
                "steps": {
                    job: {"undisturbed": quiet.as_dict(), "attacked": attacked.as_dict()}
                    for job, (quiet, attacked) in result.steps.items()
                },
            }
            for result in soak.results
        ],
        "holdings": soak.holdings,
    }


def write_json(path: Path, soak: Soak, seed: int) -> None:
    path.write_text(json.dumps(as_dict(soak, seed), indent=1) + "\n")


def table(soak: Soak) -> list[str]:
    """A line for each attack and job."""
    lines = []
    for result in soak.results:
        lines.append(
            f"{result.name}: {result.seconds:.0f} s, {result.events} kills, stops and cuts,"
            f" {result.newcomers} newcomers (slowest {result.slowest_newcomer_s:.2f} s)"
        )
        for job, (quiet, attacked) in result.steps.items():
            lines += [f"    {job:18} undisturbed  {quiet}", f"    {'':18} attacked     {attacked}"]
    return lines


def failure(soak: Soak, journal: Journal, seed: int, lane: str | None = None) -> str:
    """Of a run that failed: the seed, what was wrong, and what was under way."""
    findings = [finding for finding in soak.findings if lane is None or finding.lane == lane]
    lines = [line for line in journal.recent(4000) if lane is None or f"s] {lane}: " in line]
    again = f"tests/soak/run --seed {seed}" + (f" --attack {lane}" if lane else "")
    return "\n".join(
        [
            f"seed {seed}; again: {again}",
            *(str(finding) for finding in findings),
            "what was under way:",
            *lines[-80:],
        ]
    )
