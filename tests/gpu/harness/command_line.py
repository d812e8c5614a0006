"""tests/gpu/run and tests/gpu/bundle: what is said on the command line, and what follows."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from tests.gpu.harness import bundle as bundles
from tests.gpu.harness import report
from tests.gpu.harness.bundle import BundleError
from tests.gpu.harness.check import FAILED, Check, Outcome, run
from tests.gpu.harness.checks import CHECKS
from tests.gpu.harness.libraries import Libraries, NoGpu, find_emulators, find_libraries, nccl_text
from tests.gpu.harness.site import Site
from tests.gpu.harness.warm import kept_initialised, read_through
from tests.integration.processes import ROOT

DONE, WENT_WRONG, CANNOT = 0, 1, 2
DEFAULT_LIMIT_S = 440.0
LOG_LINES = 40
# Of four ranks with two communicators each, as the figures have them.
LITTLE_SHARED_MIB = 256


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run",
        description="Checks and measures ringd on this machine's GPU.",
        epilog="Exit code: 0 nothing failed, 1 a check failed or had no time left, 2 no GPU, no bundle "
        "or wrong usage.",
    )
    parser.add_argument("--emulated", action="store_true", help="on emulated GPUs; no figures")
    parser.add_argument("--list", action="store_true", help="list the checks and end")
    parser.add_argument(
        "--only", action="append", metavar="CHECK", choices=[check.name for check in CHECKS],
        help="only this one; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=ROOT / ".cache" / "gpu-results",
        help="where RESULTS.md and results.json go (default: .cache/gpu-results)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results.json there instead")
    parser.add_argument(
        "--limit", type=float, metavar="S", default=DEFAULT_LIMIT_S,
        help="seconds for everything (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--bundle", type=Path, metavar="DIR", default=bundles.DEFAULT,
        help="what tests/gpu/bundle has made (default: .cache/gpu-bundle)",
    )  # fmt: skip
    return parser.parse_args(words)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_main(words: Sequence[str]) -> int:
    options = _arguments(words)
    if options.list:
        for check in CHECKS:
            print(f"{check.name:16} {check.tries}")
        return DONE
    # So that everything is ended, whoever ends this.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    begin = time.monotonic()
    try:
        site, version = _site(options)
    except (BundleError, NoGpu) as reason:
        print(f"tests/gpu/run: {reason}", file=sys.stderr)
        return CANNOT
    results = report.Results(
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        emulated=options.emulated,
        machine=_machine(site.libraries, version),
    )
    for name, value in results.machine.items():
        print(f"{name:12} {value}")
    json_file = options.json or options.out / "results.json"
    chosen = [check for check in CHECKS if options.only is None or check.name in options.only]
    try:
        with _ready(site):
            for check in chosen:
                results.outcomes.append(_tell(check, site, begin + options.limit))
                results.seconds = time.monotonic() - begin
                # After each: a run that is cut short keeps what it has.
                report.write(results, json_file, options.out / "RESULTS.md")
    except KeyboardInterrupt:
        print("tests/gpu/run: interrupted", file=sys.stderr)
        return WENT_WRONG
    except OSError as error:
        print(f"tests/gpu/run: {error}", file=sys.stderr)
        return WENT_WRONG
    print(f"{results.summary()} in {results.seconds:.0f} s; {options.out / 'RESULTS.md'}, {json_file}")
    return results.exit_code()


@contextlib.contextmanager
def _ready(site: Site) -> Iterator[None]:
    """Real GPUs are ready meanwhile, and their libraries in memory."""
    if site.emulated:
        yield
        return
    with kept_initialised():
        read_through([site.libraries.cuda, site.libraries.nccl])
        yield


def _site(options: argparse.Namespace) -> tuple[Site, str]:
    bundle = bundles.find(options.bundle.resolve())
    version = bundle.version()
    libraries = find_emulators(bundle) if options.emulated else find_libraries()
    return Site(bundle, libraries, options.emulated), version


def _tell(check: Check, site: Site, end: float) -> Outcome:
    print(f"{check.name} ...", flush=True)
    outcome = run(check, site, end)
    print(f"{check.name}: {outcome.status} in {outcome.seconds:.1f} s", flush=True)
    for line in [outcome.reason, *outcome.facts]:
        if line:
            print(f"  {line}", flush=True)
    if outcome.status == FAILED:
        for line in outcome.log.splitlines()[-LOG_LINES:]:
            print(f"  | {line}", flush=True)
    return outcome


def _machine(libraries: Libraries, version: str) -> dict[str, str]:
    gpus = [
        f"{gpu['name']}, {gpu['memory_bytes'] / (1 << 30):.0f} GiB, "
        f"compute capability {gpu['compute_capability']}"
        for gpu in libraries.gpus
    ]
    return {
        "ringd": version,
        "GPU": "; ".join(gpus),
        "driver": libraries.driver or "unknown",
        "CUDA": f"{libraries.cuda_version} ({libraries.cuda})",
        "NCCL": f"{nccl_text(libraries.nccl_version)} ({libraries.nccl})",
        "NVML": str(libraries.nvml or "not found: NCCL may refuse to start"),
        "Python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "/dev/shm": _shared_memory(),
        "kernel": platform.release(),
        "processors": str(len(os.sched_getaffinity(0))),
    }


def _shared_memory() -> str:
    """NCCL reserves some of it for each rank, communicator and network connection (28 MiB with the
    most channels, by the sources of 2.27), and a container has little by default."""
    room = os.statvfs("/dev/shm")
    mib = room.f_bavail * room.f_frsize >> 20
    few = " is little: NCCL may want 28 for each rank and communicator (docker run --shm-size=1g)"
    return f"{mib} MiB free{few if mib < LITTLE_SHARED_MIB else ''}"


def bundle_main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tests/gpu/bundle",
        description="Gathers what tests/gpu/run needs where ringd is not built.",
        epilog="Needs what deploy/setup builds, and with --emulators bazel build //tests:emulators.",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=bundles.DEFAULT)
    parser.add_argument("--emulators", action="store_true", help="also what run --emulated needs")
    parser.add_argument("--limit-mib", type=int, metavar="N", default=bundles.LIMIT_BYTES >> 20)
    options = parser.parse_args(words)
    try:
        bundle = bundles.make(
            options.out.resolve(), emulators=options.emulators, limit_bytes=options.limit_mib << 20
        )
    except (BundleError, OSError) as reason:
        print(f"tests/gpu/bundle: {reason}", file=sys.stderr)
        return WENT_WRONG
    needs = ", ".join(f"{name} {number}" for name, number in bundle.needs().items())
    print(f"{bundle.folder}: {bundles.mebibytes(bundle.size())}; needs {needs} or later, and Python 3.10")
    return DONE
