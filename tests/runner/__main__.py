"""`tests/run`: see --help."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from pathlib import Path

from tests.runner import cpp_suite, lint_suite, python_suite
from tests.runner.report import Report

DESCRIPTION = """Installs what is missing, builds, and runs every test that needs no GPU: lint, C++ tests, Python
and integration tests. Shows each outcome as it comes and the log of each failure. The last line
is `N passed, N failed`; the exit code is 0 only if none failed."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/run", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only tests whose name, as in --list, contains PATTERN or matches it as a glob; may be repeated",
    )
    parser.add_argument(
        "--sanitizer",
        choices=sorted(cpp_suite.UNDER_SANITIZER),
        help="run the C++ tests, built with this sanitizer",
    )
    parser.add_argument("--list", action="store_true", help="list the tests and end")
    return parser.parse_args()


def is_selected(name: str, patterns: list[str]) -> bool:
    return not patterns or any(pattern in name or fnmatch.fnmatch(name, pattern) for pattern in patterns)


def main() -> int:
    options = parse_arguments()
    root = Path(__file__).resolve().parents[2]
    begin = time.monotonic()

    def select(names: list[str]) -> list[str]:
        return [name for name in names if is_selected(name, options.only)]

    lint = [] if options.sanitizer else select(lint_suite.names())
    cpp = select(cpp_suite.names(root, options.sanitizer))
    python = [] if options.sanitizer else select(python_suite.names(root))
    everything = [*lint, *cpp, *python]

    if options.list:
        print("\n".join(everything))
        return 0
    if not everything:
        print(
            f"tests/run: no test matches {' or '.join(options.only)} (see tests/run --list)", file=sys.stderr
        )
        return 2

    report = Report(everything)
    if lint:
        lint_suite.run(root, lint, report)
    if cpp:
        cpp_suite.run(root, cpp, options.sanitizer, report)
    if python:
        python_suite.run(root, python, report)
    return report.finish(time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
