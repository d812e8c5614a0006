"""The two files that a run leaves: results.json, and RESULTS.md to read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.harness.check import FAILED, NOT_RUN, PASSED, Outcome

WIDTH = 100


@dataclass
class Results:
    started: str
    emulated: bool
    machine: dict[str, str]
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {
            status: sum(outcome.status == status for outcome in self.outcomes)
            for status in (PASSED, FAILED, NOT_RUN)
        }

    def exit_code(self) -> int:
        """1 if a check failed, or could not be made for want of time."""
        return int(any(outcome.status == FAILED or outcome.spoils for outcome in self.outcomes))

    def summary(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.counts().items())


def write(results: Results, json_file: Path, markdown_file: Path) -> None:
    """Replaces both files; a reader never sees half a file."""
    for file, text in (
        (json_file, json.dumps(asdict(results), indent=1) + "\n"),
        (markdown_file, render(results)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        part.write_text(text)
        os.replace(part, file)


def render(results: Results) -> str:
    """RESULTS.md."""
    kind = "EMULATED GPUs: logic only" if results.emulated else "a GPU"
    lines = [
        f"# tests/gpu/run on {kind}",
        "",
        f"{results.started}, {results.seconds:.0f} s: {results.summary()}. Written by `tests/gpu/run`.",
        "",
        *table(("machine", ""), results.machine.items()),
        "",
        "## Checks",
        "",
        *table(
            ("check", "result", "s", "seen"),
            (
                (
                    one.name,
                    one.status,
                    f"{one.seconds:.1f}",
                    "; ".join([one.reason, *one.facts][not one.reason :]),
                )
                for one in results.outcomes
            ),
        ),
    ]
    figures = [figure for outcome in results.outcomes for figure in outcome.figures]
    if figures:
        lines += ["", "## Figures", "", *render_figures(figures)]
    return "\n".join(lines) + "\n"


def render_figures(figures: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each work, columns for each mode (without and with MPS)."""
    modes = list(dict.fromkeys(figure["mode"] for figure in figures))
    works = list(dict.fromkeys(figure["work"] for figure in figures))
    found = {(figure["work"], figure["mode"]): figure for figure in figures}
    head = ["median of interleaved turns"]
    for mode in modes:
        head += [f"ringd, {mode}", f"NCCL in the trainer, {mode}", f"ringd / NCCL, {mode}"]
    rows = []
    for work in works:
        row = [work]
        for mode in modes:
            figure = found.get((work, mode))
            if figure is None:
                row += ["-", "-", "-"]
                continue
            row.append(duration(figure["ringd_s"]))
            row += [duration(figure["nccl_s"]), f"{figure['ratio']:.2f}"] if "ratio" in figure else ["-", "-"]
        rows.append(row)
    return table(head, rows)


def duration(seconds: float) -> str:
    """Three digits with the unit that suits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def table(head: Sequence[str], rows: Any) -> list[str]:
    return [_row(head), "|" + "---|" * len(head), *(_row(row) for row in rows)]


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(" ".join(str(cell).replace("|", "/").split()) for cell in cells) + " |"
