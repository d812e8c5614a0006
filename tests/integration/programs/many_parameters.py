"""Rank program: a model and an object that together are larger than the arena."""

from __future__ import annotations

import ringd
import ringd.torch as hvd
import torch

MIB = 1 << 20


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    sizes = [40, 40, 0, 1, 40, 40, 40]
    model = {f"layer {i}": torch.full((size * MIB // 4,), float(hvd.rank())) for i, size in enumerate(sizes)}
    # An order of its own on each rank.
    named = list(model.items())
    hvd.broadcast_parameters(named if hvd.rank() == 0 else named[::-1], root_rank=1)
    for name, parameter in model.items():
        assert bool((parameter == 1.0).all()), name
    for size in (0, 1023, 1025, 65 * MIB, 65 * MIB + 1):
        content = bytes([7]) * size
        received = hvd.broadcast_object(content if hvd.rank() == 0 else None)
        assert received == content, size
    wrong = {name: parameter[: hvd.rank() - 2] for name, parameter in model.items() if len(parameter)}
    try:
        hvd.broadcast_parameters(wrong, root_rank=1)
    except ringd.InvalidArgumentError as error:
        assert "layer" in str(error), error
    else:
        raise AssertionError("shapes differ, and nobody is told")
    print("all is well")


main()
