"""Reads the events of rank programs (see programs/trainer.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.integration.cluster import Cluster, JobRun, Rank
from tests.integration.processes import PATIENCE_S, wait_until

PROGRAMS = Path(__file__).parent / "programs"
#: Some steps that go well.
WORKS = (PROGRAMS / "works.py").read_text()
#: What other processes may add to a promised time: linters run beside these tests. The words show
#: that the cause is the right one.
BUSY_S = 5.0
#: Lets rank programs import `trainer`.
WITH_TRAINER = {"PYTHONPATH": str(PROGRAMS)}


def start_trainers(cluster: Cluster, source: str, ranks_per_node: list[int], **options: Any) -> JobRun:
    """`Cluster.start_job` for programs that use `trainer`."""
    environment = WITH_TRAINER | options.pop("environment", {})
    return cluster.start_job(source, ranks_per_node, environment=environment, **options)


def parse_events(output: str, name: str) -> list[dict[str, Any]]:
    """All events called `name` in the output of one program or of several."""
    found = []
    for line in output.splitlines():
        # `ringctl run` puts the rank before a line; the last line may be half written.
        start = line.find('{"event"')
        if start < 0 or not line.endswith("}"):
            continue
        event = json.loads(line[start:])
        if event["event"] == name:
            found.append(event)
    return found


def wait_for_event(rank: Rank, name: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    """The first event called `name`. Doesn't reap the process, so that one which was killed stays a
    zombie."""
    try:
        wait_until(
            lambda: bool(parse_events(rank.output, name) or parse_events(rank.output, "error")),
            f"event '{name}'",
            timeout_s,
        )
    except AssertionError as error:
        raise AssertionError(f"{rank}: {error}\n{rank.output}") from None
    events = parse_events(rank.output, name)
    assert events, f"{rank} had an error instead of '{name}':\n{rank.output}"
    return events[0]


def wait_for_all(ranks: Iterable[Rank], name: str, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """`wait_for_event` of each."""
    return [wait_for_event(rank, name, timeout_s) for rank in ranks]


def wait_until_joining(cluster: Cluster, rank: Rank) -> None:
    """Until a rank is known to its ringd and waits for the others of its job."""

    def joining() -> bool:
        jobs = json.loads(cluster.ringctl("jobs", "--json", node=rank.node).stdout).get("jobs", [])
        members = [member for job in jobs if job["state"] == "joining" for member in job["local_members"]]
        return any(member["pid"] == rank.pid for member in members)

    wait_until(joining, f"{rank} is joining")


def the_same_text(errors: list[dict[str, Any]]) -> str:
    """The text of errors that must not differ."""
    texts = {error["text"] for error in errors}
    assert len(texts) == 1, "\n".join(sorted(texts))
    return str(texts.pop())


def expect_words(text: str, *words: str) -> None:
    """Fails if a message lacks one of the words."""
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} missing in: {text}"


def wait_for_warning(rank: Rank, *words: str) -> str:
    """The first of the library's warnings that has all these words. On a slow machine others may
    come before it, about ranks that are merely late."""

    def said() -> list[str]:
        lines = [line for line in rank.output.splitlines() if line.startswith("ringd: ")]
        return [line for line in lines if all(word in line for word in words)]

    try:
        wait_until(lambda: bool(said()), f"a warning with {words}")
    except AssertionError as error:
        raise AssertionError(f"{rank}: {error}\n{rank.output}") from None
    return said()[0]


def expect_within(events: list[dict[str, Any]], begin: float, seconds: float) -> None:
    """Fails if one of the events came later than that after `begin`, on a machine that has other
    things to do."""
    took = [event["at"] - begin for event in events]
    assert max(took) < seconds + BUSY_S, f"took {took} s, of {seconds} and {BUSY_S} for a busy machine"
