"""Suite `models`: a step's backward pass is replayed; each gradient is submitted when the model would have it.

The times are those of one Tesla P100 with 64 images a step, two thirds of the step being backward; the value is
what the step takes beyond computing.
"""

from __future__ import annotations

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
    "ringd, 64 MiB buckets": [Way("fixed-64MiB", "async", "arena")],
    "ringd, no fusion": [Way("no-fusion", "async", "arena")],
}


def backward_seconds(model: str) -> float:
    """How long a step's backward pass takes."""
    return IMAGES_PER_STEP / IMAGES_PER_SECOND[model] * BACKWARD_SHARE


def rows() -> list[Row]:
    """Three models at two rates."""
    made = []
    for nodes, rate in ((4, 1000), (2, 10000)):
        for model, title in TITLES.items():
            seconds = backward_seconds(model)
            made.append(
                Row(
                    name=f"models/{nodes} nodes x {rate // 1000} Gbit/s/{title}, beyond computing",
                    topology=Topology(nodes=nodes, ranks_per_node=1, rate_mbit=rate),
                    tensors=model_gradients(model, seconds),
                    ways={"ringd": [Way("learned", "async", "arena")], **PEERS},
                    goal="best of all plans and peers",
                    goal_ratio=1.0,
                    quick=model == "inception_v3",
                    computing_seconds=seconds,
                )
            )
    return made
