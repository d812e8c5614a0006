"""Rank program: communicators that overlap, side by side, on one node and over several; checked bit
for bit."""

from __future__ import annotations

import threading

import ringd
import torch
from ringd import CollectiveKind, DataType, ReduceOp, TensorSpec

STEPS = 12
EXTENTS = (3, 5_000, 300_000)


def value(rank: int, step: int, extent: int) -> torch.Tensor:
    return (torch.arange(extent) % 251 + 17 * rank + step).float()


class Group:
    def __init__(self, context: ringd.Context, name: str, ranks: list[int]) -> None:
        self.context = context
        self.ranks = ranks
        self.number = context.create_communicator(name, ranks)
        place = context.communicator_place(self.number)
        assert (place.rank, place.size) == (ranks.index(context.place.rank), len(ranks)), place

    def all_reduce(self, step: int, extent: int, op: ReduceOp = ReduceOp.SUM) -> tuple[int, torch.Tensor]:
        spec = TensorSpec(
            f"x{extent}", CollectiveKind.ALLREDUCE, DataType.FLOAT32, op, (extent,), communicator=self.number
        )
        (number,) = self.context.register([spec])
        tensor = value(self.context.place.rank, step, extent)
        return self.context.submit(number, tensor.data_ptr(), tensor.data_ptr()), tensor

    def check(self, tensor: torch.Tensor, step: int) -> None:
        extent = tensor.numel()
        expected = sum(value(rank, step, extent) for rank in self.ranks)
        assert torch.equal(tensor, expected), (self.ranks, extent, tensor[:3], expected[:3])


def side_by_side(context: ringd.Context, groups: list[Group]) -> None:
    """All in flight at once, waited for together."""
    for step in range(STEPS):
        started = [(group, *group.all_reduce(step, extent)) for group in groups for extent in EXTENTS]
        if context.place.rank % 2:
            started.reverse()
        context.wait_all([operation for _, operation, _ in started])
        for group, _, tensor in started:
            group.check(tensor, step)


def from_threads(context: ringd.Context, groups: list[Group]) -> None:
    failures: list[str] = []

    def work(group: Group) -> None:
        try:
            for step in range(STEPS):
                operation, tensor = group.all_reduce(step, 2_000)
                context.wait(operation)
                group.check(tensor, step)
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def average_broadcast_barrier(context: ringd.Context, group: Group) -> None:
    operation, tensor = group.all_reduce(0, 64, ReduceOp.AVERAGE)
    context.wait(operation)
    expected = sum(value(rank, 0, 64) for rank in group.ranks) / len(group.ranks)
    assert torch.allclose(tensor, expected), (tensor, expected)
    root = group.ranks[-1]
    given = torch.full((1000,), float(context.place.rank))
    specs = [
        TensorSpec(
            "b",
            CollectiveKind.BROADCAST,
            DataType.FLOAT32,
            0,
            (1000,),
            root_rank=root,
            communicator=group.number,
        ),
        TensorSpec("all here", CollectiveKind.BARRIER, communicator=group.number),
    ]
    broadcast, barrier = context.register(specs)
    context.wait(context.submit_awaited(broadcast, given.data_ptr(), given.data_ptr()))
    assert given.unique().tolist() == [float(root)], given
    context.wait(context.submit_awaited(barrier, 0, 0))


def main() -> None:
    torch.set_num_threads(1)
    with ringd.Context() as context:
        rank, size = context.place.rank, context.place.size
        evens, odds = list(range(0, size, 2)), list(range(1, size, 2))
        halves = [list(range(size // 2)), list(range(size // 2, size))]
        # Overlapping: each rank is in a half, in a class, and with all others in reverse order.
        mine = [
            ("half", next(half for half in halves if rank in half)),
            ("class", evens if rank % 2 == 0 else odds),
            ("everybody", list(reversed(range(size)))),
        ]
        groups = [Group(context, name, ranks) for name, ranks in mine]
        assert len({group.number for group in groups}) == 3
        side_by_side(context, groups)
        from_threads(context, groups)
        for group in groups:
            average_broadcast_barrier(context, group)
        # Again under the same names, after they have been destroyed by all.
        numbers = [group.number for group in groups]
        for group in groups:
            context.destroy_communicator(group.number)
        (everybody,) = context.register([TensorSpec("all", CollectiveKind.BARRIER)])
        context.wait(context.submit_awaited(everybody, 0, 0))
        again = [Group(context, f"{name} again", ranks) for name, ranks in mine]
        assert not {group.number for group in again} & set(numbers)
        side_by_side(context, again)
        try:
            context.register([TensorSpec("late", CollectiveKind.BARRIER, communicator=numbers[0])])
        except ringd.NotFoundError as error:
            print("told:", error)
        print("all is well", flush=True)


main()
