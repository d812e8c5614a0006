"""Rank program: tensors large enough that ringd's reducer threads sum them ahead, several in
flight, repeated."""

from __future__ import annotations

import ringd.torch as hvd
import torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
BYTES = (2 << 20) + 4096
STEPS = 5


def average(step: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers: exact in every type, as are their sums."""
    base = torch.arange(BYTES // dtype.itemsize, dtype=torch.int32)
    return ((base + step) % 3 + hvd.size()).to(dtype)


def mine(step: int, dtype: torch.dtype) -> torch.Tensor:
    """This rank's numbers; those of all ranks have that average."""
    return average(step, dtype) + (2 * hvd.rank() - (hvd.size() - 1))


def in_ordinary_memory() -> None:
    for dtype in TYPES:
        expected = average(0, dtype)
        total = hvd.allreduce(mine(0, dtype), op=hvd.Sum, name=f"{dtype} sum")
        assert torch.equal(total, expected * hvd.size()), f"{dtype} sum"
        largest = hvd.allreduce(mine(0, dtype), op=hvd.Max, name=f"{dtype} max")
        assert torch.equal(largest, expected + (hvd.size() - 1)), f"{dtype} max"


def several_in_flight_in_ordinary_memory() -> None:
    """In place; of one name some ranks have it in the arena."""
    sizes = [BYTES // 4 - 1001 * index for index in range(6)]
    for step in range(STEPS):
        tensors = []
        for index, size in enumerate(sizes):
            tensor = torch.empty(size) if (hvd.rank() + step) % 3 != index % 3 else hvd.empty(size)
            tensors.append(tensor.copy_(mine(step + index, torch.float32)[:size]))
        handles = [
            hvd.allreduce_async_(tensor, op=hvd.Average, name=f"in flight {index}")
            for index, tensor in enumerate(tensors)
        ]
        for index, handle in enumerate(handles):
            hvd.synchronize(handle)
            expected = average(step + index, torch.float32)[: sizes[index]]
            assert torch.equal(tensors[index], expected), f"step {step}, {index}"


def in_place_in_the_arena() -> None:
    tensors = [hvd.empty(BYTES // dtype.itemsize, dtype=dtype) for dtype in TYPES]
    for step in range(STEPS):
        handles = []
        for index, tensor in enumerate(tensors):
            tensor.copy_(mine(step, tensor.dtype))
            handles.append(hvd.allreduce_async_(tensor, op=hvd.Average, name=f"arena {index}"))
        for handle, tensor in zip(handles, tensors, strict=True):
            hvd.synchronize(handle)
            assert torch.equal(tensor, average(step, tensor.dtype)), f"step {step}, {tensor.dtype}"


def the_same_bits_every_time() -> None:
    generator = torch.Generator().manual_seed(hvd.rank())
    values = torch.randn(BYTES // 4, generator=generator)
    first = hvd.allreduce(values, op=hvd.Sum, name="bits")
    for _ in range(STEPS):
        assert torch.equal(hvd.allreduce(values, op=hvd.Sum, name="bits"), first)


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    in_ordinary_memory()
    several_in_flight_in_ordinary_memory()
    in_place_in_the_arena()
    the_same_bits_every_time()
    hvd.barrier(name="end")
    print("all is well")


main()
