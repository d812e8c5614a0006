"""Suite `host`: the ranks of one machine."""

from __future__ import annotations

import dataclasses

from ..row import Row
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
    "torch": [Way("gloo")],
    "horovod": [Way("gloo")],
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
    "torch": [Way("gloo", "bucket"), Way("gloo", "async")],
    "horovod": [Way("gloo", "async")],
}
SIXTEEN_BIT_PEERS = {
    "mpich": [Way("tuned"), Way("huge-heap")],
    "intelmpi": [Way("tuned"), Way("default")],
    "torch": [Way("gloo")],
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
    sleeping = {"ringd": [Way("sleep", memory="arena", wait="block")]}
    waking_peers = {name: SMALL_PEERS[name] for name in ("torch", "horovod")}
    return [
        row("4 B, spinning", one_tensor(4), SPINNING, SMALL_PEERS, "within 2 times the best MPI", ratio=0.5),
        dataclasses.replace(
            row("4 B, sleeping", one_tensor(4), [], waking_peers, "5 times torch and Horovod", ratio=5.0),
            ways={**sleeping, **waking_peers},
        ),
        row("64 KiB, arena", one_tensor(64 * KIB), ARENA, SMALL_PEERS, "no peer ahead", ratio=1.0),
        row("1 MiB, arena", one_tensor(MIB), ARENA, LARGE_PEERS, "no peer ahead", ratio=1.0),
        row("16 MiB, arena", one_tensor(16 * MIB), ARENA, LARGE_PEERS, "no peer ahead", ratio=1.0),
        row("64 MiB, arena", one_tensor(64 * MIB), ARENA, LARGE_PEERS, "1.3 times the best MPI", ratio=1.3),
        row(
            "64 MiB, ordinary memory, peers' defaults",
            one_tensor(64 * MIB),
            ORDINARY,
            DEFAULT_PEERS,
            "ahead of every peer's defaults",
            ratio=1.0,
        ),
        row(
            "64 MiB, ordinary memory",
            one_tensor(64 * MIB),
            ORDINARY,
            LARGE_PEERS,
            "within 1.5 of the best tuned peer",
            ratio=1 / 1.5,
            quick=False,
        ),
    ]


def lists() -> list[Row]:
    """Lists of tensors, each contestant in its best way."""
    small = equal_tensors(1000, 4 * KIB)
    asynchronous = [Way("learned", "async", "arena")]
    return [
        row("1,000 x 4 KiB, one call each", small, asynchronous, LIST_PEERS, "", ratio=None, quick=False),
        row(
            "ResNet-101, one call each",
            model_gradients("resnet101"),
            asynchronous,
            LIST_PEERS,
            "1.2 times the best peer's best way",
            ratio=1.2,
        ),
        row(
            "ResNet-101, one call each, ordinary memory",
            model_gradients("resnet101"),
            [Way("learned", "async"), Way("huge-heap", "async")],
            LIST_PEERS,
            "",
            ratio=None,
            quick=False,
        ),
    ]


def element_types() -> list[Row]:
    """64 MiB of narrower elements; no peer has fp8."""
    rows_of_types = []
    for dtype, peers in (
        ("bf16", SIXTEEN_BIT_PEERS),
        ("f16", SIXTEEN_BIT_PEERS),
        ("f8e4m3", {}),
        ("f8e5m2", {}),
    ):
        made = row(
            f"64 MiB of {dtype}, arena",
            one_tensor(64 * MIB, dtype),
            ARENA,
            peers,
            "1.8 times f32's elements/s" + ("; ahead of Intel MPI" if dtype == "bf16" else ""),
            ratio=1.0 if peers else None,
            quick=dtype == "bf16",
        )
        rows_of_types.append(dataclasses.replace(made, dtype=dtype))
    return rows_of_types


def beside_a_neighbour() -> list[Row]:
    """The same with a busy process on one of the cores."""
    made = []
    for label, size in (("64 KiB", 64 * KIB), ("1 MiB", MIB), ("64 MiB", 64 * MIB)):
        peers = SMALL_PEERS if size == 64 * KIB else LARGE_PEERS
        base = row(
            f"{label}, arena, beside a busy process",
            one_tensor(size),
            ARENA,
            peers,
            "degrades by the core's share",
            ratio=1.0,
            quick=False,
        )
        made.append(dataclasses.replace(base, busy_neighbour=True))
    return made


def four_ranks() -> list[Row]:
    """Twice as many ranks as this suite's usual."""
    base = row(
        "64 MiB, arena",
        one_tensor(64 * MIB),
        ARENA,
        LARGE_PEERS,
        "1.3 times the best peer",
        ratio=1.3,
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
            goal="2 us at most",
            goal_seconds=2e-6,
        )
    ]


def row(
    name: str,
    tensors: TensorList,
    ringd: list[Way],
    peers: dict[str, list[Way]],
    goal: str,
    ratio: float | None,
    quick: bool = True,
) -> Row:
    """A row of two ranks."""
    return Row(
        name=f"host/2 ranks/{name}",
        topology=TWO,
        tensors=tensors,
        ways={"ringd": ringd, **peers},
        goal=goal,
        goal_ratio=ratio,
        quick=quick,
    )
