"""`tests/run`: see --help."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.runner import cpp_suite, lint_suite, python_suite
from tests.runner.conditions import Conditions
from tests.runner.report import Outcome, Report, Verdict, print_log, single
from tests.runner.tally import Tally

DESCRIPTION = """Installs what is missing, builds, and runs every test that needs no GPU: lint, C++
tests, Python and integration tests. Shows each outcome as it comes and the log of each failure. The
last line is `N passed, N failed`; the exit code is 0 only if none failed. What does not build, or
can't be asked for its tests, counts as a failure; Ctrl-C, SIGTERM and SIGHUP end it with what is known
by then. Up to six tests that
failed are run once more, and those that pass then are told as unsteady, with what they failed with.
The integration tests, which mostly wait, run beside the other Python tests, and clang-tidy, the longest
step, beside both, with what these leave of the processors. The tests that judge milliseconds or shares
of a line begin when all that has ended.

With --repeat, runs C++, Python and integration tests again and again, to find those that depend on
timing:

    tests/run --repeat 100 --only _multiprocess_test --one-core --busy

Shows the log of each failure and, every few seconds, how far it is; ends with how many runs of each test
failed, and `N passed, N failed` counts runs."""
INTERRUPTED = 130  # as of a process that SIGINT has ended


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
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
    parser.add_argument(
        "--repeat", type=positive, metavar="N", help="run each test N times, whatever has passed before"
    )
    parser.add_argument("--one-core", action="store_true", help="with --repeat: all on one processor")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="with --repeat: beside a process for each processor that never sleeps",
    )
    options = parser.parse_args(arguments)
    if options.repeat is None and (options.one_core or options.busy):
        parser.error("--one-core and --busy go with --repeat")
    return options


def positive(text: str) -> int:
    """A whole number above 0; argparse tells of the ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def is_selected(name: str, patterns: list[str]) -> bool:
    return not patterns or any(pattern in name or fnmatch.fnmatch(name, pattern) for pattern in patterns)


def repeat(
    root: Path, cpp: Sequence[str], python: Sequence[str], sanitizer: str | None, conditions: Conditions
) -> int:
    """Runs the tests under `conditions`, as often as these say; the exit code."""
    begin = time.monotonic()
    tally = Tally([*cpp, *python], conditions.runs)
    interrupted = False
    with conditions.beside():
        try:
            if cpp:
                tally.begin(cpp, conditions.runs)
                cpp_suite.run(root, cpp, sanitizer, tally, conditions)
            for _ in range(conditions.runs if python else 0):
                tally.begin(python, 1)
                python_suite.run(root, [python], tally, conditions.prefix)
        except KeyboardInterrupt:
            interrupted = True
    code = tally.finish(time.monotonic() - begin, interrupted)
    return INTERRUPTED if interrupted else code


def run_once(
    root: Path,
    lint: Sequence[str],
    cpp: Sequence[str],
    python: Sequence[str],
    sanitizer: str | None,
    report: Report,
) -> None:
    """Runs the tests, and once more those that have failed, if they are few."""
    alone = [name for name in python if python_suite.wants_to_be_alone(name)]
    with_others = [name for name in python if name not in alone]
    # With nothing to run beside it, the long step runs as the others.
    beside = [name for name in lint if name == lint_suite.LONG and with_others]
    if others := [name for name in lint if name not in beside]:
        lint_suite.run(root, others, report)
    if cpp:
        cpp_suite.run(root, cpp, sanitizer, report)
    if beside:
        with lint_suite.Beside(root, beside[0]) as step:
            python_suite.run(root, python_suite.lanes(with_others), report)
            step.finish(report)
    elif with_others:
        python_suite.run(root, python_suite.lanes(with_others), report)
    if alone:
        python_suite.run(root, [alone], report)
    again = report.begin_again([*cpp, *python])
    if again:
        print(f"\nonce more: {', '.join(again)}", flush=True)
        if cpp_again := [name for name in again if name in cpp]:
            cpp_suite.run(root, cpp_again, sanitizer, report)
        if python_again := [name for name in again if name in python]:
            python_suite.run(root, [python_again], report)


class Selection:
    """The chosen tests of each suite, and of suites that could not be asked, why."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self._patterns: list[str] = options.only
        self.broken: list[Outcome] = []
        # Lint finds the same each time.
        has_lint = not options.sanitizer and not options.repeat
        self.lint = self._of("lint", lint_suite.names) if has_lint else []
        self.cpp = self._of("C++ tests", lambda: cpp_suite.names(root, options.sanitizer))
        self.python = [] if options.sanitizer else self._of("Python tests", lambda: python_suite.names(root))

    def _of(self, suite: str, names: Callable[[], list[str]]) -> list[str]:
        try:
            return [name for name in names() if is_selected(name, self._patterns)]
        except (OSError, RuntimeError) as error:
            self.broken.append(single(f"{suite}: which there are", Verdict.FAILED, 0, str(error)))
            return []

    @property
    def names(self) -> list[str]:
        return [*self.lint, *self.cpp, *self.python]


def main(root: Path, arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    begin = time.monotonic()
    # Also who is told to end by `timeout` or `kill` leaves nothing behind, and says what is known;
    # under nohup a terminal's end is none.
    for end in (signal.SIGTERM, signal.SIGHUP):
        if end is not signal.SIGHUP or signal.getsignal(end) is not signal.SIG_IGN:
            signal.signal(end, signal.default_int_handler)
    try:
        selection = Selection(root, options)
    except KeyboardInterrupt:
        if not options.list:
            print("0 passed, 0 failed", flush=True)
        return INTERRUPTED
    if options.list or options.repeat:
        for outcome in selection.broken:
            print(f"tests/run: {outcome.name}:", file=sys.stderr)
            print_log(outcome.log, stream=sys.stderr)
        if options.list:
            print("\n".join(selection.names))
        elif selection.broken:
            print(f"0 passed, {len(selection.broken)} failed", flush=True)
        if selection.broken or options.list:
            return 1 if selection.broken else 0
    if not selection.names and not selection.broken:
        print(
            f"tests/run: no test matches {' or '.join(options.only)} (see tests/run --list)", file=sys.stderr
        )
        return 2
    if options.repeat:
        conditions = Conditions(options.repeat, options.one_core, options.busy)
        return repeat(root, selection.cpp, selection.python, options.sanitizer, conditions)

    report = Report([outcome.name for outcome in selection.broken] + selection.names)
    interrupted = False
    try:
        for outcome in selection.broken:
            report.add(outcome)
        run_once(root, selection.lint, selection.cpp, selection.python, options.sanitizer, report)
    except KeyboardInterrupt:
        interrupted = True
    code = report.finish(time.monotonic() - begin, interrupted)
    return INTERRUPTED if interrupted else code


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2], sys.argv[1:]))
