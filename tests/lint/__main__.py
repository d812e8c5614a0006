"""Runs lint alone: `tests/lint/run [STEP...]`. Exits with 1 if any step complains."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.lint import tools
from tests.lint.source_tree import SourceTree
from tests.lint.steps import STEPS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests/lint/run", description="Checks the format and the rules of the tree."
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"only these of: {', '.join(STEPS)}")
    parser.add_argument("--fix", action="store_true", help="format all files in place first")
    options = parser.parse_args()
    wanted = options.steps or list(STEPS)
    for name in wanted:
        if name not in STEPS:
            parser.error(f"no step {name!r}; there are {', '.join(STEPS)}")

    tree = SourceTree(Path(__file__).resolve().parents[2])
    if options.fix:
        tools.fix(tree)
    failed = []
    for name in wanted:
        begin = time.monotonic()
        complaints = STEPS[name](tree)
        verdict = "FAIL" if complaints else "pass"
        print(f"{verdict}  lint/{name}  ({time.monotonic() - begin:.1f} s)", flush=True)
        for line in complaints:
            print(f"      {line}")
        if complaints:
            failed.append(name)
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
