"""Suite `torch`: whole training steps of a user's script, through DistributedOptimizer and its
peers'.

The value is the whole step; `beyond` is what it takes longer than the same training that exchanges
nothing. One thread a rank.
"""

from __future__ import annotations

from ..goals import Ahead, Beyond, Clause, ProcessorTimeAtMost
from ..row import Reference, Row
from ..site import Topology
from ..work import TensorList, Way

ALONE = "alone"
PEERS = ("torch", "horovod")
# A step differs by as much from start to start.
LEVEL_STEPS = 1 / 1.01
TITLES = {"mlp": "MLP", "transformer": "transformer", "resnet50": "ResNet-50"}
HOST = {"2 ranks": Topology(1, 2), "4 ranks": Topology(1, 4)}
LINES = {
    "2 nodes x 10 Gbit/s": Topology(2, 1, rate_mbit=10000),
    "4 nodes x 1 Gbit/s": Topology(4, 1, rate_mbit=1000),
}


def rows() -> list[Row]:
    """Three models in each place, and two ranks that leave a core idle."""
    made = [row(place, topology, model) for place, topology in {**HOST, **LINES}.items() for model in TITLES]
    two = Topology(1, 2)
    made += [row("2 ranks", two, model, "training-one-core") for model in TITLES]
    return sorted(made, key=lambda one: list({**HOST, **LINES}.values()).index(one.topology))


def row(place: str, topology: Topology, model: str, configuration: str = "training") -> Row:
    """A training of one model."""
    on_a_host = topology.rate_mbit is None
    idle_core = configuration == "training-one-core"
    goals: list[Clause] = [
        Ahead("no peer ahead, by whole steps", LEVEL_STEPS, PEERS),
        ProcessorTimeAtMost("at most torch's processor time", "torch"),
    ]
    if on_a_host:
        goals.append(Beyond("half of torch's time beyond computing", 0.5, "torch", ALONE))
    way = Way(configuration, "train")
    return Row(
        name=f"torch/{place}{', one core idle' if idle_core else ''}/{TITLES[model]}",
        topology=topology,
        tensors=TensorList(model, COUNTS[model]()),
        ways={"ringd": [way], **{name: [way] for name in PEERS}},
        goals=tuple(goals),
        references={ALONE: Reference([Way(configuration, "alone")])},
        quick=model != "resnet50" and not idle_core and place != "4 ranks",
        training=True,
    )


def mlp() -> tuple[int, ...]:
    return (1000 * 1000, 1000) * 21


def transformer() -> tuple[int, ...]:
    width, hidden = 256, 1024
    attention = (3 * width * width, 3 * width, width * width, width)
    layer = (*attention, hidden * width, hidden, width * hidden, width, width, width, width, width)
    return layer * 12 + (10 * width, 10)


def resnet50() -> tuple[int, ...]:
    counts = [64 * 3 * 49, 64, 64]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        outputs = 4 * width
        for block in range(blocks):
            counts += [width * inputs, width, width, 9 * width * width, width, width]
            counts += [outputs * width, outputs, outputs]
            if block == 0:
                counts += [outputs * inputs, outputs, outputs]
            inputs = outputs
    return (*counts, 1000 * inputs, 1000)


COUNTS = {"mlp": mlp, "transformer": transformer, "resnet50": resnet50}
