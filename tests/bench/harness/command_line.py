"""The command line of tests/bench/run."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

from . import table
from .goals import BEFORE
from .machine import Probe
from .peers.peer import Unavailable
from .peers.registry import everyone, install_all
from .suite_run import ROWS, SUITES, Options, SuiteRun, selected

PROGRAM = "tests/bench/run"
NOTHING_MEASURED = 1
USAGE_ERROR = 2
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measures ringd beside its peers in one run; README.md in this folder says how to "
        "read it.",
        epilog=f"`{PROGRAM} table FILE...` renders JSON files of earlier runs as a Markdown table.",
    )
    made.add_argument("suite", choices=SUITES, help="which rows: ranks on one host, shaped links, ...")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    made.add_argument("--quick", action="store_true", help="fewer rows and rounds; under three minutes")
    made.add_argument(
        "--row", default="", metavar="PATTERN", help="only rows whose name contains or matches it"
    )
    made.add_argument("--peers", default="", metavar="A,B", help="only these contestants (ringd is one)")
    made.add_argument(
        "--before",
        type=Path,
        metavar="FOLDER",
        help="also another build of ringd, as a contestant: ringd, ringd-engine, ringctl and ringd_driver "
        "are there",
    )
    made.add_argument(
        "--no-install", action="store_true", help="install and build nothing; use what is there"
    )
    made.add_argument("--limit", type=seconds, metavar="SECONDS", help="start no row after so long")
    made.add_argument("--list", action="store_true", help="list the suite's rows and stop")
    return made


def seconds(text: str) -> float:
    """0 or more; argparse tells of the ValueError."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def complaint_about(options: argparse.Namespace) -> str:
    """What the command line has that makes no sense; empty if nothing."""
    names = [peer.name for peer in everyone()] + ([BEFORE] if options.before is not None else [])
    unknown = [name for name in options.peers.split(",") if name and name not in names]
    if unknown:
        return f"--peers: no contestant is called {' or '.join(unknown)}; there are {', '.join(names)}"
    target: Path | None = options.json
    if target is not None:
        # Not after 25 minutes.
        existed = target.exists()
        try:
            target.open("a").close()
            if not existed:
                target.unlink()
        except OSError as error:
            return f"--json: {error}"
    return ""


def main(arguments: list[str]) -> int:
    """The exit status: 0 measured, 1 nothing measured, 2 usage."""
    if arguments[:1] == ["table"]:
        return render_tables(arguments[1:])
    options = parser().parse_args(arguments)
    choice = Options(options.suite, options.quick, options.row, options.limit)
    if options.list:
        for row in selected(choice) if options.suite in ROWS else []:
            print(row.name)
        return 0
    if options.suite in ROWS and not selected(choice):
        fewer = ", of which --quick leaves out some" if options.quick else ""
        print(f"{PROGRAM}: no row matches '{options.row}' (--list names them{fewer})", file=sys.stderr)
        return USAGE_ERROR
    if complaint := complaint_about(options):
        print(f"{PROGRAM}: {complaint}", file=sys.stderr)
        return USAGE_ERROR
    if os.geteuid() != 0:
        print(f"{PROGRAM}: needs root, for network namespaces", file=sys.stderr)
        return USAGE_ERROR
    # A terminated run must take its namespaces with it, just as an interrupted one; and a shell's
    # background job starts with interrupts ignored.
    for ending in ENDINGS:
        # Under nohup a terminal's end is none.
        if ending is not signal.SIGHUP or signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, interrupt)
    wanted = [name for name in options.peers.split(",") if name]
    try:
        probe = Probe()
        probe.build()
        peers = install_all(wanted, say, not options.no_install, options.before)
    except Unavailable as reason:
        print(f"{PROGRAM}: {reason}", file=sys.stderr)
        return NOTHING_MEASURED
    return measure(SuiteRun(choice, peers, probe, say), options.json)


def interrupt(*_: object) -> None:
    """Once is enough: whoever presses again must not interrupt the cleaning up."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def measure(run: SuiteRun, target: Path | None) -> int:
    try:
        run.run()
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        # Also of a run that something has ended: with the rows that it has.
        if target is not None:
            target.write_text(json.dumps(run.result(), indent=1) + "\n", encoding="utf-8")
    for name in run.skipped:
        say(f"skipped for time: {name}")
    return 0 if any(has_figure(entry) for entry in run.entries) else NOTHING_MEASURED


def has_figure(entry: dict[str, Any]) -> bool:
    return entry.get("ringd") is not None or any(value is not None for value in entry["peers"].values())


def render_tables(names: list[str]) -> int:
    if not names:
        print(f"usage: {PROGRAM} table FILE...", file=sys.stderr)
        return USAGE_ERROR
    try:
        runs = table.load([Path(name) for name in names])
    except (OSError, ValueError) as error:
        print(f"{PROGRAM}: table: {error}", file=sys.stderr)
        return USAGE_ERROR
    print(table.render(runs), end="")
    return 0


def say(text: str) -> None:
    print(text, flush=True)
