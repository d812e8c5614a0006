"""Suite `idle`: what a node pays while its trainers do nothing, and what a steady step
exchanges."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import paths
from ..contestants import Contestants
from ..peers.ringd import socket_path
from ..peers.training import project_python
from ..report import plain_row
from ..session import PeerError
from ..site import Site, Topology, run
from ..work import Batch, Way, model_gradients

TRAINERS = Topology(nodes=1, ranks_per_node=4)
MANY = Topology(nodes=1, ranks_per_node=1)
STEPPING = Topology(nodes=2, ranks_per_node=1, rate_mbit=10000)
GOAL_CPU_PERCENT = 0.5
JOBS = 20
GOAL_JOBS_CPU_PERCENT = 1.0
DRIVER = paths.DRIVERS / "idle_jobs.py"


def idle_node(
    site: Site, contestants: Contestants, seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """CPU of ringd, with its engines, and of four attached trainers that wait for nothing, and
    ringd's memory for them."""
    say(f"  four idle trainers, {seconds:.0f} s")
    contestants.session("ringd", "learned")
    time.sleep(2)  # whatever attaching sets in motion is over
    pids = [int(pid) for pid in run("ip", "netns", "pids", site.hub).split()]
    daemons = daemons_of(site)
    before, started = cpu_seconds(pids), time.monotonic()
    daemon_before = cpu_seconds(daemons)
    time.sleep(seconds)
    passed = time.monotonic() - started
    percent = 100 * (cpu_seconds(pids) - before) / passed
    daemon_percent = 100 * (cpu_seconds(daemons) - daemon_before) / passed
    memory = sum(proportional_kib(pid) for pid in daemons)
    return [
        plain_row(
            "idle/4 trainers attached, ringd and trainers",
            "cpu",
            "% of a core",
            percent,
            f"below {GOAL_CPU_PERCENT} %",
            percent < GOAL_CPU_PERCENT,
        ),
        plain_row(
            "idle/4 trainers attached, ringd alone",
            "cpu",
            "% of a core",
            daemon_percent,
            f"below {GOAL_CPU_PERCENT} %",
            daemon_percent < GOAL_CPU_PERCENT,
        ),
        plain_row(
            "idle/ringd's memory per attached trainer",
            "proportional set size",
            "KiB",
            memory / TRAINERS.ranks,
            "documented",
            None,
        ),
    ]


def many_jobs(
    site: Site, contestants: Contestants, package: Path, seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """What it takes to begin a job, and what ringd and its engines cost while many do nothing.

    Raises PeerError, and Unavailable without an interpreter.
    """
    say(f"  {JOBS} idle jobs, {seconds:.0f} s")
    session = contestants.session("ringd", "learned")
    environment = os.environ | {
        "PYTHONPATH": str(package),
        "RINGD_SOCKET": socket_path(session.folder, 0),
    }
    command = site.inside(0, [project_python(), str(DRIVER), str(JOBS)])
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as jobs:
        assert jobs.stdin is not None
        assert jobs.stdout is not None
        try:
            line = jobs.stdout.readline()
            if not line:
                raise PeerError(f"{DRIVER.name} has ended")
            joins: dict[str, list[float]] = json.loads(line)
            time.sleep(2)
            daemons = daemons_of(site)
            before, started = cpu_seconds(daemons), time.monotonic()
            time.sleep(seconds)
            percent = 100 * (cpu_seconds(daemons) - before) / (time.monotonic() - started)
            # Those that stand ready have no job yet.
            used = sorted(proportional_kib(pid) for pid in daemons if command_name(pid) == "ringd-engine")
            engine_kib = statistics.median(used)
        finally:
            jobs.stdin.close()
    return [
        plain_row(
            "idle/join of a job", "median", "ms", statistics.median(joins["joins_ms"]), "documented", None
        ),
        plain_row(
            "idle/joins of two jobs at once",
            "median",
            "ms",
            statistics.median(joins["pairs_ms"]),
            "documented",
            None,
        ),
        plain_row(
            f"idle/{JOBS} idle jobs, ringd and engines",
            "cpu",
            "% of a core",
            percent,
            f"below {GOAL_JOBS_CPU_PERCENT} %",
            percent < GOAL_JOBS_CPU_PERCENT,
        ),
        plain_row("idle/an engine's memory", "proportional set size", "KiB", engine_kib, "documented", None),
    ]


def daemons_of(site: Site) -> list[int]:
    """ringd and its engines."""
    pids = [int(pid) for pid in run("ip", "netns", "pids", site.hub).split()]
    return [pid for pid in pids if command_name(pid) in ("ringd", "ringd-engine")]


def steady_steps(
    site: Site, contestants: Contestants, ringctl: Path, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Negotiation messages per step, once the schedule is learned."""
    say("  steady steps of ResNet-101's gradients")
    session = contestants.session("ringd", "learned")
    gradients = model_gradients("resnet101")
    way = Way("learned", "async", "arena")
    session.run(gradients, "f32", way, Batch(inner=1, samples=10, warmup=0, verify=True), 120)
    # A batch begins with a barrier, which no schedule knows: the difference of two batches has
    # none.
    steps = 10
    counts = [negotiation_messages(ringctl, session.folder, site)]
    for inner in (1, steps + 1):
        session.run(gradients, "f32", way, Batch(inner=inner, samples=1, warmup=0), 120)
        counts.append(negotiation_messages(ringctl, session.folder, site))
    messages = ((counts[2] - counts[1]) - (counts[1] - counts[0])) / steps
    return [
        plain_row(
            "idle/negotiation messages per steady step", "messages", "per step", messages, "0", messages == 0
        )
    ]


def negotiation_messages(ringctl: Path, control: Path, site: Site) -> float:
    """What `ringctl comms` of the first node counts. Raises PeerError when it does not say."""
    command = site.inside(0, [str(ringctl), "comms", "--socket", socket_path(control, 0), "--json"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise PeerError(f"ringctl comms: {done.stderr.strip()}")
    counts = list(find_numbers(json.loads(done.stdout), "negotiation_messages"))
    if not counts:
        raise PeerError("ringctl comms --json has no negotiation_messages")
    return sum(counts)


def find_numbers(value: Any, key: str) -> list[float]:
    """All numbers under `key`, at any depth."""
    found: list[float] = []
    if isinstance(value, dict):
        for name, inner in value.items():
            found += [float(inner)] if name == key else find_numbers(inner, key)
    elif isinstance(value, list):
        for inner in value:
            found += find_numbers(inner, key)
    return found


def command_name(pid: int) -> str:
    """The program's name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def cpu_seconds(pids: list[int]) -> float:
    """Processor time that these processes have used."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def proportional_kib(pid: int) -> float:
    """Memory of a process, shared pages counted by their share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1])
    return 0.0
