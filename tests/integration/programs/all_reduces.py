"""Rank program: all-reduces of every type, operation, shape and form, against sums computed
here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ringd
import ringd.torch as hvd
import torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SHORT_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]
SHAPES = [(), (1,), (7,), (3, 0), (33, 5), (4, 3, 2, 5), (70_001,)]
OPS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    hvd.Sum: lambda stacked: stacked.sum(dim=0),
    hvd.Average: lambda stacked: stacked.mean(dim=0),
    hvd.Min: lambda stacked: stacked.amin(dim=0),
    hvd.Max: lambda stacked: stacked.amax(dim=0),
    hvd.Product: lambda stacked: stacked.prod(dim=0),
}


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, exact in every type, whose average over the ranks is whole, too."""
    count = int(torch.Size(shape).numel())
    base = torch.arange(count, dtype=torch.float64) % 3 + hvd.size()
    return (base + 2 * rank - (hvd.size() - 1)).reshape(shape).to(dtype)


def all_ranks(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([of_rank(rank, shape, dtype).double() for rank in range(hvd.size())])


def expect(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert actual.shape == expected.shape, f"{what}: {actual.shape} instead of {expected.shape}"
    assert torch.equal(actual.double(), expected.double()), f"{what}: {actual} instead of {expected}"


def every_type_operation_and_shape() -> None:
    for dtype in FLOATS + INTEGERS:
        for op, reduce in OPS.items():
            for shape in SHAPES:
                what = f"{dtype} {op.name} {shape}"
                # For products only 1 and 2, whose products are exact in every type.
                inputs = all_ranks(shape, dtype)
                inputs = inputs % 2 + 1 if op == hvd.Product else inputs
                mine = inputs[hvd.rank()].to(dtype)
                before = mine.clone()
                result = hvd.allreduce(mine, op=op, name=what)
                assert result.dtype == dtype
                expect(result, reduce(inputs), what)
                assert torch.equal(mine, before), f"{what}: the input was changed"


def short_floats() -> None:
    for dtype in SHORT_FLOATS:
        mine = (torch.arange(1000) % 2).to(dtype)
        result = hvd.allreduce(mine, op=hvd.Sum, name=f"short {dtype}")
        expect(result.float(), (torch.arange(1000) % 2).float() * hvd.size(), str(dtype))


def averages_near_the_largest_number() -> None:
    """An average of numbers is one, also where their sum is too large for the type."""
    for dtype in [torch.float16, *SHORT_FLOATS]:
        largest = torch.finfo(dtype).max
        # Through one node, by ring, and by the ranks themselves.
        for count in (5, 1000, 400_000):
            values = torch.tensor([largest, -largest, largest / 2, 1.0, 0.0]).repeat(count // 5).to(dtype)
            for name, result in {
                "at once": hvd.allreduce(values, op=hvd.Average, name=f"average {dtype} {count}"),
                "later": hvd.synchronize(
                    hvd.allreduce_async(values, op=hvd.Average, name=f"average {dtype} {count} later")
                ),
            }.items():
                what = f"average of {count} large {dtype}, {name}: {result.float()}"
                # Rounded once for each node.
                close = torch.isclose(result.float(), values.float(), rtol=torch.finfo(dtype).eps, atol=0)
                assert bool(close.all()), what


def what_is_no_number_stays_so() -> None:
    """What loss scalers look for: infinities and NaN of one rank reach all; overflow is what the
    type says."""
    for dtype in [*FLOATS, *SHORT_FLOATS]:
        for count in (4, 100_000):
            mine = torch.zeros(count)
            mine[0] = torch.nan if hvd.rank() == 0 else 1.0
            mine[1] = torch.inf if hvd.rank() == hvd.size() - 1 else 1.0
            for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
                result = hvd.allreduce(mine.to(dtype), op=op, name=f"nan {dtype} {op.name} {count}").float()
                assert result[0].isnan(), f"{dtype} {op.name}: {result[:4]}"
                # float8_e4m3fn has no infinity.
                if dtype != torch.float8_e4m3fn:
                    assert result[1] == (1.0 if op == hvd.Min else torch.inf), (
                        f"{dtype} {op.name}: {result[:4]}"
                    )
        largest = torch.finfo(dtype).max
        sums = hvd.allreduce(
            torch.full((3,), largest, dtype=torch.double).to(dtype), op=hvd.Sum, name=f"overflow {dtype}"
        ).double()
        # The shortest types stay at their largest number.
        expected = largest if dtype in SHORT_FLOATS else torch.inf
        assert torch.equal(sums, torch.full((3,), expected, dtype=torch.double)), f"{dtype}: {sums}"
    wrapped = hvd.allreduce(torch.full((3,), 127, dtype=torch.int8), op=hvd.Sum, name="wraps")
    expect(wrapped, torch.full((3,), (127 * hvd.size() + 128) % 256 - 128, dtype=torch.int8), "wraps")
    floored = hvd.allreduce(torch.full((3,), -1 if hvd.rank() == 0 else 0), op=hvd.Average, name="floored")
    expect(floored, torch.full((3,), -1), "an average of integers is rounded down")


def booleans() -> None:
    mine = torch.arange(hvd.size()) == hvd.rank()
    assert hvd.allreduce(mine, op=hvd.Max, name="any").all()
    assert bool(hvd.allreduce(mine, op=hvd.Min, name="all").any()) == (hvd.size() == 1)


def in_place_and_strided() -> None:
    tensor = of_rank(hvd.rank(), (6, 4), torch.float32)
    expected = all_ranks((6, 4), torch.float32)
    assert hvd.allreduce_(tensor, op=hvd.Sum, name="in place") is tensor
    expect(tensor, expected.sum(0), "in place")

    whole = of_rank(hvd.rank(), (6, 4), torch.float32)
    column = whole[:, 1]
    hvd.allreduce_(column, op=hvd.Sum, name="a column in place")
    expect(whole[:, 1], expected.sum(0)[:, 1], "the column")
    expect(whole[:, 2], expected[hvd.rank()][:, 2], "the column's neighbour")
    expect(hvd.allreduce(whole.t(), op=hvd.Max, name="t").t()[:, 2], expected.amax(0)[:, 2], "transposed")
    # Nobody else waits for it then.
    for change in (hvd.allreduce_, lambda tensor, name: hvd.broadcast_(tensor, 0, name=name)):
        try:
            change(torch.ones(1, 1).expand(4, 4), name="expanded")
        except ringd.InvalidArgumentError as error:
            assert "expanded" in str(error), error
            assert "contiguous" in str(error), error
        else:
            raise AssertionError("an expanded tensor was written")
    image = of_rank(hvd.rank(), (2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last)
    expect(
        hvd.allreduce(image, name="image"), all_ranks((2, 3, 4, 5), torch.float32).mean(0), "channels last"
    )


def scaled() -> None:
    tensor = torch.full((5,), float(hvd.rank() + 1))
    total = sum(range(1, hvd.size() + 1))
    result = hvd.allreduce(tensor, op=hvd.Sum, name="scaled", prescale_factor=0.5, postscale_factor=4.0)
    expect(result, torch.full((5,), total * 2.0), "scaled")
    with_flag = hvd.allreduce(tensor, average=False, name="deprecated flag")
    expect(with_flag, torch.full((5,), float(total)), "average=False")
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(tensor, name=f"{compression.__name__}", compression=compression, op=hvd.Sum)
        assert result.dtype == torch.float32
        expect(result, torch.full((5,), float(total)), "compressed")


def grouped() -> None:
    shapes = [(3,), (2, 2), (), (0,)]
    types = [torch.float32, torch.int64, torch.float64, torch.float16]
    pairs = list(zip(shapes, types, strict=True))
    mine = [of_rank(hvd.rank(), shape, dtype) for shape, dtype in pairs]
    for result, (shape, dtype) in zip(
        hvd.grouped_allreduce(mine, op=hvd.Sum, name="group"), pairs, strict=True
    ):
        expect(result, all_ranks(shape, dtype).sum(0), f"grouped {dtype}")
    handle = hvd.grouped_allreduce_async_(mine, op=hvd.Average, name="group in place")
    results = hvd.synchronize(handle)
    assert all(result is tensor for result, tensor in zip(results, mine, strict=True))
    for tensor, (shape, dtype) in zip(mine, pairs, strict=True):
        expect(tensor, all_ranks(shape, dtype).mean(0), f"grouped {dtype} in place")
    assert hvd.grouped_allreduce([], name="empty group") == []


def another_order_on_every_rank() -> None:
    names = [f"order {index}" for index in range(64)]
    generator = torch.Generator().manual_seed(hvd.rank())
    for step in range(4):
        handles = {}
        for index in torch.randperm(len(names), generator=generator).tolist():
            tensor = torch.full((index * 17 + 1,), float(index + hvd.rank() + step))
            handles[index] = hvd.allreduce_async(tensor, op=hvd.Sum, name=names[index])
        for index in torch.randperm(len(names), generator=generator).tolist():
            total = sum(index + rank + step for rank in range(hvd.size()))
            expect(
                hvd.synchronize(handles[index]),
                torch.full((index * 17 + 1,), float(total)),
                names[index],
            )


def without_names() -> None:
    for _ in range(3):
        first = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
        second = hvd.allreduce_async(torch.ones(2, 2) * 2, op=hvd.Sum)
        expect(hvd.synchronize(second), torch.full((2, 2), 2.0 * hvd.size()), "second")
        expect(hvd.synchronize(first), torch.full((3,), 1.0 * hvd.size()), "first")
    # The same name, twice in flight: matched in order.
    handles = [hvd.allreduce_async(torch.full((4,), float(i)), op=hvd.Sum, name="twice") for i in range(2)]
    for index, handle in enumerate(handles):
        expect(hvd.synchronize(handle), torch.full((4,), float(index * hvd.size())), "twice")


def polled() -> None:
    handle = hvd.allreduce_async(torch.ones(10), op=hvd.Sum, name="polled")
    while not hvd.poll(handle):
        pass
    expect(hvd.synchronize(handle), torch.full((10,), float(hvd.size())), "polled")
    assert hvd.poll(handle)
    expect(hvd.synchronize(handle), torch.full((10,), float(hvd.size())), "a second time")


def in_the_arena() -> None:
    tensor = hvd.empty(1000, dtype=torch.float32)
    assert torch.count_nonzero(tensor) == 0
    for step in range(3):
        tensor.fill_(float(step + hvd.rank()))
        hvd.allreduce_(tensor, op=hvd.Sum, name="arena")
        total = float(sum(step + rank for rank in range(hvd.size())))
        expect(tensor, torch.full((1000,), total), "arena")
    # A view that begins within an element's alignment of nothing in particular.
    part = tensor[3:77]
    part.fill_(1.0)
    hvd.allreduce_(part, op=hvd.Sum, name="part of the arena")
    expect(tensor[2:78][1:75], torch.full((74,), float(hvd.size())), "part")
    expect(tensor[77:], torch.full((923,), total), "beyond the part")


def gradients() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    result = hvd.allreduce(weights * (hvd.rank() + 1), op=hvd.Sum, name="forward", prescale_factor=0.5)
    (result * (hvd.rank() + 1)).sum().backward()
    total = sum(rank + 1 for rank in range(hvd.size()))
    assert weights.grad is not None
    expect(weights.grad, torch.full((3,), 0.5 * total * (hvd.rank() + 1)), "gradient of a sum")

    inputs = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    outputs = hvd.grouped_allreduce(inputs, op=hvd.Average, name="grouped forward")
    (outputs[0].sum() * (hvd.rank() + 1) + outputs[1].sum()).backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is not None
    expect(inputs[0].grad, torch.full((2,), total / hvd.size()), "gradient of a group's first")
    expect(inputs[1].grad, torch.ones(3), "gradient of a group's second")

    root = torch.ones(2, requires_grad=True)
    (hvd.broadcast(root, 0, name="forward") * (hvd.rank() + 1)).sum().backward()
    assert root.grad is not None
    expect(root.grad, torch.full((2,), float(total if hvd.rank() == 0 else 0)), "gradient of a broadcast")

    saved = torch.ones(3, requires_grad=True) * 2
    product = saved * saved
    hvd.allreduce_(saved.detach(), name="changed behind autograd's back")
    try:
        product.sum().backward()
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        raise AssertionError("a backward pass used values that an in-place reduction had replaced")


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    every_type_operation_and_shape()
    short_floats()
    averages_near_the_largest_number()
    what_is_no_number_stays_so()
    booleans()
    in_place_and_strided()
    scaled()
    grouped()
    another_order_on_every_rank()
    without_names()
    polled()
    in_the_arena()
    gradients()
    hvd.barrier(name="end")
    print("all is well")


main()
