"""Rank program: a model and an object that together are larger than the arena."""

from __future__ import annotations

import ringd.torch as hvd
import torch

MIB = 1 << 20


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    sizes = [40, 40, 0, 1, 40, 40, 40]
    model = {f"layer {i}": torch.full((size * MIB // 4,), float(hvd.rank())) for i, size in enumerate(sizes)}
    hvd.broadcast_parameters(model, root_rank=1)
    for name, parameter in model.items():
        assert bool((parameter == 1.0).all()), name
    for size in (0, 1023, 1025, 65 * MIB, 65 * MIB + 1):
        content = bytes([7]) * size
        received = hvd.broadcast_object(content if hvd.rank() == 0 else None)
        assert received == content, size
    print("all is well")


main()
