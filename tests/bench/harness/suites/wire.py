"""Suite `wire`: one rank on each of several nodes, joined by shaped links."""

from __future__ import annotations

from ..goals import Ahead, Clause, LineShare, ProcessorTimeAtMost
from ..row import Reference, Row
from ..site import Topology
from ..work import KIB, MIB, TensorList, Way, equal_tensors, model_gradients, one_tensor, payload_bytes

FOUR_AT_1G = Topology(nodes=4, ranks_per_node=1, rate_mbit=1000)
TWO_AT_10G = Topology(nodes=2, ranks_per_node=1, rate_mbit=10000)
EIGHT_AT_1G = Topology(nodes=8, ranks_per_node=1, rate_mbit=1000)

ONE_CALL = {
    "openmpi": [Way("ob1-tcp"), Way("ucx-tcp")],
    "mpich": [Way("ofi"), Way("ofi-ring")],
    "intelmpi": [Way("ofi-ring")],
    "torch": [Way("gloo")],
    "horovod": [Way("gloo")],
}
# One call for each tensor, blocking or not, whichever suits the peer.
CALL_EACH = {
    "openmpi": [Way("ob1-tcp", "async"), Way("ucx-tcp", "async"), Way("ucx-tcp")],
    "mpich": [Way("ofi", "async"), Way("ofi")],
    "intelmpi": [Way("ofi-ring", "async"), Way("ofi-ring")],
    "torch": [Way("gloo", "async"), Way("gloo")],
    "horovod": [Way("gloo", "async")],
}
# What a careful user of the peer does instead.
PACKED = {
    "openmpi": [Way("ob1-tcp", "bucket")],
    "mpich": [Way("ofi", "bucket")],
    "intelmpi": [Way("ofi-ring", "bucket")],
    "torch": [Way("gloo", "bucket")],
}
# The peers of the learned plan are ringd's own fixed plans.
PLANS = {
    "ringd, 64 MiB buckets": [Way("fixed-64MiB", "async", "arena")],
    "ringd, no fusion": [Way("no-fusion", "async", "arena")],
}
# What RDMA would take, over what is there.
OVER_UCX = {"ringd, over UCX": Reference([Way("ucx", memory="arena")])}


def rows() -> list[Row]:
    """All rows, those of one topology side by side."""
    resnet = model_gradients("resnet101")
    small = equal_tensors(1000, 4 * KIB)
    single = [Way("learned", memory="arena")]
    each = [Way("learned", "async", "arena")]
    made = []
    for label, topology in (("4 nodes x 1 Gbit/s", FOUR_AT_1G), ("2 nodes x 10 Gbit/s", TWO_AT_10G)):
        slow = topology is FOUR_AT_1G
        made += [
            row(
                topology,
                label,
                "64 MiB",
                one_tensor(64 * MIB),
                single,
                ONE_CALL,
                share=0.955 if slow else 0.93,
                ratio=1.0 if slow else None,
                references=OVER_UCX,
            ),
            row(
                topology,
                label,
                "64 MiB, ordinary memory",
                one_tensor(64 * MIB),
                [Way("learned")],
                ONE_CALL,
                ratio=1.0,
                quick=False,
            ),
            row(
                topology,
                label,
                "1,000 x 4 KiB, one call each",
                small,
                each,
                CALL_EACH,
                ratio=3.0 if slow else None,
                quick=slow,
            ),
            row(
                topology,
                label,
                "ResNet-101, one call each",
                resnet,
                each,
                CALL_EACH,
                share=0.95 if slow else None,
                quick=slow,
            ),
            row(
                topology,
                label,
                "ResNet-101, the caller packs 64 MiB",
                resnet,
                [Way("learned", "bucket", "arena")],
                PACKED,
                quick=False,
            ),
            row(topology, label, "1,000 x 4 KiB, plans", small, each, PLANS, ratio=1 / 1.03, quick=False),
            row(topology, label, "ResNet-101, plans", resnet, each, PLANS, ratio=1 / 1.03, quick=False),
        ]
    eight = "8 nodes x 1 Gbit/s"
    for size_label, size in (("4 B", 4), ("256 B", 256), ("4 KiB", 4 * KIB)):
        made.append(
            row(
                EIGHT_AT_1G,
                eight,
                size_label,
                one_tensor(size),
                single,
                ONE_CALL,
                ratio=1.0,
                quick=size != 256,
            )
        )
    return made


def row(
    topology: Topology,
    place: str,
    name: str,
    tensors: TensorList,
    ringd: list[Way],
    peers: dict[str, list[Way]],
    share: float | None = None,
    ratio: float | None = None,
    quick: bool = True,
    references: dict[str, Reference] | None = None,
) -> Row:
    """`share` is the goal as a part of the line, `ratio` as one to the best peer; with both, both
    must hold."""
    goals: list[Clause] = []
    if share is not None:
        goals.append(LineShare(f"{100 * share:g} % of the line", share))
    if ratio is not None:
        text = "no peer ahead" if ratio == 1.0 else f"{ratio:.3g} times the best peer"
        goals.append(Ahead(text, ratio, tuple(peers)))
    # Calls of a few bytes take a line's round trip, in which processors have nothing to do.
    if "torch" in peers and payload_bytes(tensors, "f32") >= MIB:
        goals.append(ProcessorTimeAtMost("at most torch's processor time", "torch"))
    return Row(
        name=f"wire/{place}/{name}",
        topology=topology,
        tensors=tensors,
        ways={"ringd": ringd, **peers},
        goals=tuple(goals),
        references=references or {},
        quick=quick,
    )
