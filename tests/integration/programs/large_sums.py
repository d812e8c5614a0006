"""Rank program: tensors large enough that ringd's reducer threads sum them ahead, several in flight, repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ringd.torch as hvd
import torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
OPS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    hvd.Sum: lambda stacked: stacked.sum(dim=0),
    hvd.Average: lambda stacked: stacked.mean(dim=0),
    hvd.Max: lambda stacked: stacked.amax(dim=0),
}
BYTES = (5 << 20) + 4096
STEPS = 6


def inputs(step: int, dtype: torch.dtype) -> torch.Tensor:
    """Of all ranks: small whole numbers, exact in every type, whose average over the ranks is whole, too."""
    base = (torch.arange(BYTES // dtype.itemsize) + step) % 3 + hvd.size()
    return torch.stack([base + 2 * rank - (hvd.size() - 1) for rank in range(hvd.size())])


def in_ordinary_memory() -> None:
    for dtype in TYPES:
        for op, reduce in OPS.items():
            values = inputs(0, dtype)
            result = hvd.allreduce(values[hvd.rank()].to(dtype), op=op, name=f"{dtype} {op.name}")
            assert torch.equal(result.double(), reduce(values.double())), f"{dtype} {op.name}"


def in_place_in_the_arena() -> None:
    tensors = [hvd.empty(BYTES // dtype.itemsize, dtype=dtype) for dtype in TYPES]
    for step in range(STEPS):
        handles = []
        for index, tensor in enumerate(tensors):
            tensor.copy_(inputs(step, tensor.dtype)[hvd.rank()])
            handles.append(hvd.allreduce_async_(tensor, op=hvd.Average, name=f"arena {index}"))
        for handle, tensor in zip(handles, tensors, strict=True):
            hvd.synchronize(handle)
            expected = inputs(step, tensor.dtype).double().mean(dim=0)
            assert torch.equal(tensor.double(), expected), f"step {step}, {tensor.dtype}"


def the_same_bits_every_time() -> None:
    generator = torch.Generator().manual_seed(hvd.rank())
    mine = torch.randn(BYTES // 4, generator=generator)
    first = hvd.allreduce(mine, op=hvd.Sum, name="bits")
    for _ in range(STEPS):
        assert torch.equal(hvd.allreduce(mine, op=hvd.Sum, name="bits"), first)


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    in_ordinary_memory()
    in_place_in_the_arena()
    the_same_bits_every_time()
    hvd.barrier(name="end")
    print("all is well")


main()
