"""Rank program: communicators that match by order, beside one that matches by name; checked bit for
bit."""

from __future__ import annotations

from array import array

import ringd
from ringd import CollectiveKind, DataType, ReduceOp, TensorSpec

EXTENTS = (1, 8, 9, 5_000, 300_000)


def values(rank: int, step: int, extent: int) -> array[float]:
    return array("f", [float((i + 17 * rank + step) % 251) for i in range(extent)])


def address(elements: array) -> int:
    return elements.buffer_info()[0]


class Pair:
    """The same operations again and again, in an order that its ranks know."""

    def __init__(self, context: ringd.Context, name: str, ranks: list[int]) -> None:
        self.context = context
        self.ranks = ranks
        self.number = context.create_communicator(name, ranks, matching="order")
        self.kept: list[tuple[int, array, array, str]] = []
        self.sources: list[array] = []

    def all_reduce(self, step: int, extent: int, op: ReduceOp, in_place: bool) -> None:
        source = values(self.context.place.rank, step, extent)
        target = source if in_place else array("f", bytes(4 * extent))
        operation = self.context.submit_in_order(
            self.number, CollectiveKind.ALLREDUCE, address(source), address(target), extent, op=op
        )
        self.sources.append(source)
        columns = list(zip(*(values(rank, step, extent) for rank in self.ranks), strict=True))
        combined = [sum(c) if op is ReduceOp.SUM else max(c) for c in columns]
        self.kept.append((operation, target, array("f", combined), f"{op.name} of {extent}"))

    def scaled(self, step: int, extent: int, op: ReduceOp) -> None:
        mine = values(self.context.place.rank, step, extent)
        operation = self.context.submit_in_order(
            self.number,
            CollectiveKind.ALLREDUCE,
            address(mine),
            address(mine),
            extent,
            op=op,
            prescale=0.25,
            postscale=8.0,
        )
        columns = zip(*(values(rank, step, extent) for rank in self.ranks), strict=True)
        parts = len(self.ranks) if op is ReduceOp.AVERAGE else 1
        expected = array("f", [2 * sum(column) / parts for column in columns])
        self.kept.append((operation, mine, expected, f"scaled {op.name} of {extent}"))

    def broadcast(self, step: int, extent: int, root: int) -> None:
        mine = values(self.context.place.rank, step, extent)
        operation = self.context.submit_in_order(
            self.number,
            CollectiveKind.BROADCAST,
            address(mine),
            address(mine),
            extent,
            data_type=DataType.FLOAT32,
            root_rank=root,
        )
        self.kept.append((operation, mine, values(root, step, extent), f"broadcast of {extent}"))

    def barrier(self) -> None:
        operation = self.context.submit_in_order(self.number, CollectiveKind.BARRIER)
        self.kept.append((operation, array("f"), array("f"), "barrier"))

    def step(self, step: int) -> None:
        for extent in EXTENTS:
            self.all_reduce(step, extent, ReduceOp.SUM, in_place=step % 2 == 0)
            # What is expected takes Python long.
            if extent <= 5_000:
                self.scaled(step, extent, ReduceOp.SUM)
                self.scaled(step, extent, ReduceOp.AVERAGE)
            self.broadcast(step, extent, self.ranks[step % len(self.ranks)])
        self.barrier()
        self.all_reduce(step, 300, ReduceOp.MAX, in_place=False)
        self.all_reduce(step, 0, ReduceOp.SUM, in_place=True)

    def check(self) -> None:
        self.context.wait_all([operation for operation, *_ in self.kept])
        for _, target, expected, what in self.kept:
            same = target == expected
            if "AVERAGE" in what:
                same = all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(target, expected, strict=True))
            assert same, (self.ranks, what, target[:3], expected[:3])
        self.kept.clear()
        self.sources.clear()


def main() -> None:
    with ringd.Context() as context:
        rank, size = context.place.rank, context.place.size
        groups = [Pair(context, "all in order", list(range(size)))]
        groups.append(Pair(context, f"rank {rank} alone", [rank]))
        if rank in (0, size - 1):
            groups.append(Pair(context, "first and last", [size - 1, 0]))
        (named,) = context.register([TensorSpec("named", shape=(1000,))])
        for step in range(4):
            mine = values(rank, step, 1000)
            # The other way round on half of the ranks: different communicators have no order.
            for group in groups if rank % 2 else reversed(groups):
                group.step(step)
            operation = context.submit(named, address(mine), address(mine))
            for group in groups:
                group.check()
            context.wait(operation)
            assert mine == array(
                "f", map(sum, zip(*(values(r, step, 1000) for r in range(size)), strict=True))
            )
        # More than are under way at a time, one after the other and waited for at the end.
        small = [array("i", [rank + i, i]) for i in range(500)]
        operations = [
            context.submit_in_order(
                groups[0].number,
                CollectiveKind.ALLREDUCE,
                address(s),
                address(s),
                2,
                data_type=DataType.INT32,
            )
            for s in small
        ]
        context.wait_all(operations)
        for i, s in enumerate(small):
            assert list(s) == [sum(r + i for r in range(size)), size * i], (i, s)
        try:
            context.destroy_communicator(groups[0].number)
        except ringd.RingdError as error:
            raise AssertionError("all has been waited for") from error
    print("all is well", flush=True)


main()
