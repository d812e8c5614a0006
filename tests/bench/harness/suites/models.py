"""Suite `models`: a step's backward pass is replayed; each gradient is submitted when the model
would have it.

The times are those of one Tesla P100 with 64 images a step, two thirds of the step being backward;
the value is what the step takes beyond computing. Goals are about the whole of it: 20 us of a step
of 300 ms are nothing to a user.
"""

from __future__ import annotations

from ..goals import Ahead
from ..row import Row
from ..site import Topology
from ..work import Way, model_gradients

IMAGES_PER_STEP = 64
BACKWARD_SHARE = 2 / 3
IMAGES_PER_SECOND = {"inception_v3": 142.0, "resnet101": 129.0, "vgg16": 154.0}
TITLES = {"inception_v3": "Inception-V3", "resnet101": "ResNet-101", "vgg16": "VGG-16"}

PEERS = {
    "openmpi": [Way("ob1-tcp", "async"), Way("ob1-tcp", "bucket")],
    "mpich": [Way("ofi", "async"), Way("ofi", "bucket")],
    "intelmpi": [Way("ofi-ring", "async"), Way("ofi-ring", "bucket")],
    "torch": [Way("gloo", "async"), Way("gloo", "bucket")],
    "horovod": [Way("gloo", "async")],
    "ringd, 64 MiB buckets": [Way("fixed-64MiB", "async", "arena")],
    "ringd, no fusion": [Way("no-fusion", "async", "arena")],
}


# Ranks of one node.
LOCAL_PEERS = {
    "openmpi": [Way("sm", "async"), Way("sm", "bucket")],
    "mpich": [Way("huge-heap", "async"), Way("huge-heap", "bucket")],
    "intelmpi": [Way("tuned", "async"), Way("tuned", "bucket")],
    "torch": [Way("gloo", "async"), Way("gloo", "bucket")],
    "horovod": [Way("gloo", "async")],
    "ringd, no background": [Way("no-background", "async", "arena")],
}


def backward_seconds(model: str) -> float:
    """How long a step's backward pass takes."""
    return IMAGES_PER_STEP / IMAGES_PER_SECOND[model] * BACKWARD_SHARE


def rows() -> list[Row]:
    """Three models at two rates and on one node."""
    made = []
    for nodes, rate in ((4, 1000), (2, 10000)):
        topology = Topology(nodes=nodes, ranks_per_node=1, rate_mbit=rate)
        made += [row(f"{nodes} nodes x {rate // 1000} Gbit/s", topology, PEERS, model) for model in TITLES]
    one_node = Topology(nodes=1, ranks_per_node=2)
    return made + [row("2 ranks", one_node, LOCAL_PEERS, model) for model in TITLES]


def row(where: str, topology: Topology, peers: dict[str, list[Way]], model: str) -> Row:
    """A step of one model."""
    seconds = backward_seconds(model)
    return Row(
        name=f"models/{where}/{TITLES[model]}, beyond computing",
        topology=topology,
        tensors=model_gradients(model, seconds),
        ways={"ringd": [Way("learned", "async", "arena")], **peers},
        goals=(Ahead("best of all plans and peers, by whole steps", 1.0, tuple(peers), besides=seconds),),
        quick=model == "inception_v3",
        computing_seconds=seconds,
    )
