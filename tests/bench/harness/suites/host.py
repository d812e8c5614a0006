"""Suite `host`: the ranks of one machine."""

from __future__ import annotations

import dataclasses

from ..goals import Ahead, AtMost, Clause, ElementRate, Slowdown
from ..row import Reference, Row
from ..site import Topology
from ..work import KIB, MIB, TensorList, Way, equal_tensors, model_gradients, one_tensor

TWO = Topology(nodes=1, ranks_per_node=2)
FOUR = Topology(nodes=1, ranks_per_node=4)
ONE = Topology(nodes=1, ranks_per_node=1)

ARENA = [Way("learned", memory="arena"), Way("spin", memory="arena")]
SPINNING = [Way("spin", memory="arena"), Way("learned", memory="arena")]
ORDINARY = [Way("learned"), Way("huge-heap")]

# Each peer's best settings by size; the first is the one of a quick run.
SMALL_PEERS = {
    "openmpi": [Way("ucx"), Way("sm")],
    "mpich": [Way("huge-heap"), Way("tuned")],
    "intelmpi": [Way("default")],
    "torch": [Way("gloo")],
    "horovod": [Way("gloo")],
}
LARGE_PEERS = {
    "openmpi": [Way("sm"), Way("ucx")],
    "mpich": [Way("tuned"), Way("huge-heap")],
    "intelmpi": [Way("tuned"), Way("default")],
    "torch": [Way("gloo"), Way("gloo-huge-heap")],
    "horovod": [Way("gloo"), Way("gloo-huge-heap")],
}
DEFAULT_PEERS = {
    "openmpi": [Way("default")],
    "mpich": [Way("default")],
    "intelmpi": [Way("default")],
    "torch": [Way("gloo")],
    "horovod": [Way("gloo")],
}
# A list of gradients: a blocking call each is the MPIs' best way on one host, buckets are gloo's.
LIST_PEERS = {
    "openmpi": [Way("sm"), Way("ucx"), Way("sm", "bucket"), Way("ucx", "async")],
    "mpich": [Way("huge-heap"), Way("huge-heap", "bucket"), Way("huge-heap", "async")],
    "intelmpi": [Way("tuned"), Way("default"), Way("tuned", "bucket"), Way("default", "async")],
    "torch": [Way("gloo", "bucket"), Way("gloo-huge-heap", "bucket"), Way("gloo", "async")],
    "horovod": [Way("gloo", "async")],
}
MPIS = ("openmpi", "mpich", "intelmpi")
# A neighbour that wants all of one core leaves half of it to the rank there: twice the time, and a
# quarter of that for the noise of what measures it.
CORE_SHARE = 2 * 1.25

SIXTEEN_BIT_PEERS = {
    "mpich": [Way("tuned"), Way("huge-heap")],
    "intelmpi": [Way("tuned"), Way("default")],
    "torch": [Way("gloo"), Way("gloo-huge-heap")],
}


def rows() -> list[Row]:
    """All rows, those of one topology side by side and the small ones first."""
    return [
        *single_calls(),
        *lists(),
        *element_types(),
        *beside_a_neighbour(),
        *four_ranks(),
        *null_operation(),
    ]


def single_calls() -> list[Row]:
    """One blocking all-reduce of one tensor."""
    return [
        row(
            "4 B, spinning",
            one_tensor(4),
            SPINNING,
            SMALL_PEERS,
            Ahead("within 2 times the best MPI", 0.5, MPIS),
        ),
        row(
            "4 B, sleeping",
            one_tensor(4),
            [Way("sleep", memory="arena", wait="block")],
            {name: SMALL_PEERS[name] for name in ("torch", "horovod")},
            Ahead("5 times torch", 5.0, ("torch",)),
            Ahead("5 times Horovod", 5.0, ("horovod",)),
        ),
        row("64 KiB, arena", one_tensor(64 * KIB), ARENA, SMALL_PEERS, no_peer_ahead(SMALL_PEERS)),
        row("1 MiB, arena", one_tensor(MIB), ARENA, LARGE_PEERS, no_peer_ahead(LARGE_PEERS)),
        row("16 MiB, arena", one_tensor(16 * MIB), ARENA, LARGE_PEERS, no_peer_ahead(LARGE_PEERS)),
        row(
            "64 MiB, arena",
            one_tensor(64 * MIB),
            ARENA,
            LARGE_PEERS,
            Ahead("1.3 times the best MPI in either state", 1.3, MPIS, either_state=True),
            Ahead("4 times torch", 4.0, ("torch",)),
        ),
        row(
            "4 MiB, ordinary memory",
            one_tensor(4 * MIB),
            ORDINARY,
            LARGE_PEERS,
            no_peer_ahead(LARGE_PEERS),
            quick=False,
        ),
        row(
            "64 MiB, ordinary memory, peers' defaults",
            one_tensor(64 * MIB),
            [Way("learned")],
            DEFAULT_PEERS,
            Ahead("ahead of every peer's defaults", 1.0, tuple(DEFAULT_PEERS)),
        ),
        row(
            "64 MiB, ordinary memory",
            one_tensor(64 * MIB),
            ORDINARY,
            LARGE_PEERS,
            Ahead("within 1.5 of the best tuned peer", 1 / 1.5, tuple(LARGE_PEERS)),
            quick=False,
        ),
    ]


def lists() -> list[Row]:
    """Lists of tensors, each contestant in its best way."""
    small = equal_tensors(1000, 4 * KIB)
    asynchronous = [Way("learned", "async", "arena")]
    return [
        row("1,000 x 4 KiB, one call each", small, asynchronous, LIST_PEERS, quick=False),
        row(
            "ResNet-101, one call each",
            model_gradients("resnet101"),
            asynchronous,
            LIST_PEERS,
            Ahead("1.2 times the best peer's best way", 1.2, tuple(LIST_PEERS)),
            Ahead("6 times torch", 6.0, ("torch",)),
        ),
        row(
            "ResNet-101, one call each, ordinary memory",
            model_gradients("resnet101"),
            [Way("learned", "async"), Way("huge-heap", "async"), Way("learned"), Way("huge-heap")],
            LIST_PEERS,
            quick=False,
        ),
    ]


def element_types() -> list[Row]:
    """64 MiB of narrower elements beside as many bytes of f32; no peer has fp8."""
    f32 = "ringd, f32"
    faster = ElementRate("1.8 times f32's elements/s", 1.8, f32)
    made = []
    for dtype, peers, goals in (
        ("bf16", SIXTEEN_BIT_PEERS, [faster, Ahead("ahead of Intel MPI", 1.0, ("intelmpi",))]),
        ("f16", SIXTEEN_BIT_PEERS, [faster]),
        ("f8e4m3", {}, [faster]),
        ("f8e5m2", {}, [faster]),
    ):
        tensor = one_tensor(64 * MIB, dtype)
        base = row(f"64 MiB of {dtype}, arena", tensor, ARENA, peers, *goals, quick=dtype == "bf16")
        references = {f32: Reference(ARENA, one_tensor(64 * MIB), "f32")}
        made.append(dataclasses.replace(base, dtype=dtype, references=references))
    return made


def beside_a_neighbour() -> list[Row]:
    """The same with a busy process on one of the cores, and ringd also without it."""
    undisturbed = "ringd, undisturbed"
    by_share = Slowdown("degrades by the core's share", CORE_SHARE, undisturbed)
    gradients = model_gradients("resnet101")
    made = []
    for label, tensors, ways, peers in (
        ("4 B, spinning", one_tensor(4), SPINNING, SMALL_PEERS),
        ("64 KiB, arena", one_tensor(64 * KIB), ARENA, SMALL_PEERS),
        ("1 MiB, arena", one_tensor(MIB), ARENA, LARGE_PEERS),
        ("16 MiB, arena", one_tensor(16 * MIB), ARENA, LARGE_PEERS),
        ("64 MiB, arena", one_tensor(64 * MIB), ARENA, LARGE_PEERS),
        ("64 MiB, ordinary memory", one_tensor(64 * MIB), ORDINARY, LARGE_PEERS),
        ("ResNet-101, one call each", gradients, [Way("learned", "async", "arena")], LIST_PEERS),
    ):
        name = f"{label}, beside a busy process"
        ahead = [no_peer_ahead(peers)] if label.endswith("arena") else []
        base = row(name, tensors, ways, peers, by_share, *ahead, quick=False)
        references = {undisturbed: Reference(ways, undisturbed=True)}
        made.append(dataclasses.replace(base, busy_neighbour=True, references=references))
    return made


def four_ranks() -> list[Row]:
    """Twice as many ranks as this suite's usual."""
    base = row(
        "64 MiB, arena",
        one_tensor(64 * MIB),
        ARENA,
        LARGE_PEERS,
        Ahead("1.3 times the best peer", 1.3, tuple(LARGE_PEERS)),
        quick=False,
    )
    return [dataclasses.replace(base, name="host/4 ranks/64 MiB, arena", topology=FOUR)]


def null_operation() -> list[Row]:
    """From a client through ringd and back."""
    return [
        Row(
            name="host/1 rank/null operation, spinning",
            topology=ONE,
            tensors=one_tensor(4),
            ways={"ringd": [Way("spin", "null"), Way("learned", "null")]},
            goals=(AtMost("2 us at most", 2e-6),),
        )
    ]


def no_peer_ahead(peers: dict[str, list[Way]]) -> Ahead:
    return Ahead("no peer ahead", 1.0, tuple(peers))


def row(
    name: str,
    tensors: TensorList,
    ringd: list[Way],
    peers: dict[str, list[Way]],
    *goals: Clause,
    quick: bool = True,
) -> Row:
    """A row of two ranks."""
    return Row(
        name=f"host/2 ranks/{name}",
        topology=TWO,
        tensors=tensors,
        ways={"ringd": ringd, **peers},
        goals=goals,
        quick=quick,
    )
