"""What no implementation can beat, by arithmetic. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .site import Topology, burst_bytes

# So little takes no time to read and write, but to reach the other ranks.
SMALL_BYTES = 4096


def wire_floor(payload: int, nodes: int, rate_mbit: int) -> float:
    """Seconds in which a line moves what each node must send: 2(N-1)/N of the bytes."""
    if nodes < 2:
        return 0.0
    return 2 * (nodes - 1) / nodes * payload * 8 / (rate_mbit * 1e6)


def replay_floor(
    payloads: list[int], ready: list[float], computing_seconds: float, floor_of: Callable[[int], float]
) -> float:
    """Seconds beyond computing that a replayed step needs at least: from the moment at which any
    gradient appears, that one and all later ones are to be moved. `floor_of`: seconds for so many
    bytes."""
    remaining = 0
    finish = 0.0
    for payload, moment in sorted(zip(payloads, ready, strict=True), key=lambda pair: -pair[1]):
        remaining += payload
        finish = max(finish, moment + floor_of(remaining))
    return max(0.0, finish - computing_seconds)


def host_floor(sweep_seconds: float, line_ns: float) -> float:
    """Seconds in which memory can do it: every rank's buffer is read and written once, where it is
    (0 for what is too small to count); and what one rank holds has to reach another, which is half
    a cache line's round trip."""
    return max(sweep_seconds, 0.5e-9 * line_ns)


def size_class(payload: int) -> int:
    """The largest of a few sizes that is not above `payload`: a smaller one is swept no slower,
    byte for byte."""
    size = SMALL_BYTES
    while 4 * size <= payload:
        size *= 4
    return size


def beats_the_line(seconds: float, payload: int, topology: Topology) -> bool:
    """Whether a time is impossible over the shaped links, even with tbf's bucket full at the start:
    then the bytes went another way, such as shared memory between namespaces."""
    if topology.rate_mbit is None or topology.nodes < 2:
        return False
    free = 2 * burst_bytes(topology.rate_mbit)
    needed = 2 * (topology.nodes - 1) / topology.nodes * payload - free
    return seconds < 0.99 * needed * 8 / (topology.rate_mbit * 1e6)


def fewest_bytes_on_wire(payload: int, nodes: int, calls: int) -> int:
    """What all nodes together must send for so many all-reduces, by whatever algorithm."""
    return 2 * (nodes - 1) * payload * calls


def line_share(seconds: float, floor_seconds: float) -> float:
    """Which part of the line's bandwidth was used, 0 to 1."""
    return floor_seconds / seconds if seconds > 0 else 0.0
