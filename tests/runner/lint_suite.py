"""The steps of lint as tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tests.lint.source_tree import SourceTree
from tests.lint.steps import STEPS
from tests.runner.report import Report, Verdict, single

PREFIX = "lint/"


def names() -> list[str]:
    return [PREFIX + step for step in STEPS]


def run(root: Path, selected: Sequence[str], report: Report) -> None:
    tree = SourceTree(root)
    for name in selected:
        begin = time.monotonic()
        complaints = STEPS[name.removeprefix(PREFIX)](tree)
        verdict = Verdict.FAILED if complaints else Verdict.PASSED
        report.add(single(name, verdict, time.monotonic() - begin, "\n".join(complaints)))
