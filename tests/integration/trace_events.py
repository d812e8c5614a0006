"""What a file that `ringctl trace` has written says: Chrome trace events, by process and track."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

# Times are told in microseconds with fractions.
ROUNDING_US = 0.01


def check_format(loaded: dict[str, Any]) -> None:
    """What the Trace Event Format asks of complete events and of metadata."""
    assert set(loaded) == {"displayTimeUnit", "baseTimeNanoseconds", "otherData", "traceEvents"}
    assert loaded["displayTimeUnit"] == "ms"
    assert isinstance(loaded["baseTimeNanoseconds"], int)
    named = set()
    for event in loaded["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            key = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
            assert set(event["args"]) == {key[event["name"]]}
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X"
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert isinstance(event["cat"], str)
        assert ("process_name", event["pid"], 0) in named, "a slice of a process without a name"
        assert ("thread_name", event["pid"], event["tid"]) in named, "a slice on a track without a name"
    for slices in by_track(loaded).values():
        expect_nested(slices)


def by_track(loaded: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    tracks = defaultdict(list)
    for event in loaded["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def expect_nested(slices: list[dict[str, Any]]) -> None:
    """Of one track: each lies within the one before, or behind it."""
    open_until: list[float] = []
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        while open_until and open_until[-1] <= event["ts"] + ROUNDING_US:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + ROUNDING_US, event
        open_until.append(end)


def processes(loaded: dict[str, Any]) -> dict[int, str]:
    return {
        event["pid"]: event["args"]["name"]
        for event in loaded["traceEvents"]
        if event["name"] == "process_name"
    }


def slices_of(loaded: dict[str, Any], process: str, category: str) -> list[dict[str, Any]]:
    """Of the one process whose name begins so."""
    (pid,) = [pid for pid, name in processes(loaded).items() if name.startswith(process)]
    return [
        event
        for event in loaded["traceEvents"]
        if event["ph"] == "X" and event["pid"] == pid and event["cat"] == category
    ]


def expect_in_order(slices: list[dict[str, Any]], names: list[str], needed: set[str]) -> None:
    for event in slices:
        stages = event["args"]["stages_us"]
        assert needed <= set(stages), event
        times = [stages[name] for name in names if name in stages]
        assert times == sorted(times), event
        assert abs(stages["submitted"] - event["ts"]) < ROUNDING_US, event
        assert abs(stages["completed"] - event["ts"] - event["dur"]) < ROUNDING_US, event


def finished(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose beginning and end are in the trace."""
    return [event for event in slices if "unfinished" not in event["args"]]


def expect_one_clock(loaded: dict[str, Any], of_rank: list[list[dict[str, Any]]]) -> None:
    """No rank has a result before the last one has submitted its part."""
    uncertain_us = max(node["clock_uncertainty_us"] for node in loaded["otherData"]["nodes"])
    by_operation: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for operations in of_rank:
        for event in operations:
            by_operation[event["args"]["operation"]].append(event)
    whole = [events for events in by_operation.values() if len(events) == len(of_rank)]
    assert len(whole) > 20
    for events in whole:
        last_submitted = max(event["ts"] for event in events)
        first_completed = min(event["ts"] + event["dur"] for event in events)
        assert first_completed >= last_submitted - uncertain_us - ROUNDING_US, events
