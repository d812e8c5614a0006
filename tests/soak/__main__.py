"""tests/soak/run: see --help."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.soak import network, report
from tests.soak.attacks import ALL, named
from tests.soak.conductor import Soak
from tests.soak.journal import Journal

DESCRIPTION = """Four jobs of two users train through three ringds while other jobs are killed, stopped
and cut off, newcomers come and go, and a hostile user attacks. The four must notice nothing: their
sums are right, and their slowest step takes at most 50 ms longer than undisturbed. Afterwards ringd
holds what it held before. Needs root."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/soak/run", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="list the attacks and end")
    parser.add_argument(
        "--attack", action="append", metavar="NAME", choices=[attack.name for attack in ALL],
        help="only this one; may be repeated",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of all that is by chance; a random one if not given")
    parser.add_argument("--minutes", type=float, help="again and again for so long; once if not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes everything measured there")
    parser.add_argument(
        "--hold", metavar="WHAT", help="keep all as it is when that is wrong, as `leaks`, until Ctrl-C"
    )
    parser.add_argument("--quiet", action="store_true", help="say only the end")
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = parse_arguments()
    if options.list:
        for attack in ALL:
            print(f"{attack.name:20} {attack.tries}")
        return 0
    if os.geteuid() != 0:
        print("tests/soak/run: needs root, for network namespaces and other users", file=sys.stderr)
        return 2
    # So that everything is ended, whoever ends this.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    network.remove_stale()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    journal = Journal(verbose=not options.quiet)
    attacks = [named(name) for name in options.attack] if options.attack else list(ALL)
    soak = Soak(attacks, seed, journal, options.hold)
    try:
        soak.run(options.minutes)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if options.json is not None:
            report.write_json(options.json, soak, seed)
    print("\n".join(report.table(soak)))
    if soak.findings:
        print(report.failure(soak, journal, seed))
    print(f"{len(soak.results)} attacks, {len(soak.findings)} findings")
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())
