"""One rank's tensors and parameters for all, and barriers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ringd.errors import InvalidArgumentError
from ringd.torch.handle import Handle, finished
from ringd.torch.job import Communicator, current
from ringd.torch.operations import broadcast_spec, check_is_tensor, check_tensor, checked_root, start
from ringd.torch.process_set import ProcessSet, communicator_of, global_process_set
from ringd.torch.uncompiled import uncompiled
from ringd.types import CollectiveKind, TensorSpec

# Of a model's tensors: far below the arena's size (arena_bytes), and enough to keep lines busy.
_IN_FLIGHT_BYTES = 64 << 20

_NOTHING = torch.empty(0, device="cpu")


def _full_name(communicator: Communicator, name: str | None) -> str:
    return communicator.automatic_names.next("broadcast") if name is None else f"broadcast.{name}"


@uncompiled
def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Begins to give all ranks the root's tensor, as a new one; ``synchronize`` gives it.

    Arguments: as ``broadcast``.
    """
    job = current()
    communicator = communicator_of(process_set, job)
    whole_name = _full_name(communicator, name)
    check_tensor(tensor, whole_name)
    output = torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)
    spec = broadcast_spec(tensor, whole_name, root_rank, communicator.number)
    return start(job, output, [(spec, tensor, output)])


@uncompiled
def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """As ``broadcast_async``, in place. Arguments: as ``broadcast``."""
    job = current()
    communicator = communicator_of(process_set, job)
    spec = broadcast_spec(tensor, _full_name(communicator, name), root_rank, communicator.number)
    return start(job, tensor, [(spec, tensor, tensor)])


@uncompiled
def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The root's tensor, as a new one. Blocks until it is there. Differentiable: the root's
    gradient is the sum of all ranks'.

    tensor: the same type and shape on all ranks; only the root's elements matter.
    root_rank: whose tensor it is; its number in the job, also with a process set.
    name: the same on all ranks. Default: unnamed calls are matched by their order.
    process_set: the ranks that take part, the root among them. Default: all.

    Raises ``InvalidArgumentError`` if the ranks disagree, or if the root or this rank is not in the
    process set; ``JobFailedError`` if the job has failed.
    """
    check_is_tensor(tensor, "broadcast", name)
    root_rank = checked_root(root_rank)
    if torch.is_grad_enabled() and tensor.requires_grad:
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return finished(broadcast_async(tensor, root_rank, name, process_set))


@uncompiled
def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Writes the root's tensor into every rank's and returns it. Arguments: as ``broadcast``."""
    return finished(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.arguments = (root_rank, name, process_set)
        return finished(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        from ringd.torch.allreduce import Sum, allreduce

        root_rank, name, process_set = ctx.arguments
        name = None if name is None else f"{name}.gradient"
        total = allreduce(gradients[0], name=name, op=Sum, process_set=process_set)
        is_root = current().place.rank == root_rank
        return total if is_root else torch.zeros_like(total), None, None, None


@uncompiled
def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> None:
    """Returns when all ranks of the process set have called it.

    process_set: the ranks that take part. Default: all.
    name: the same on all ranks. Default: all unnamed barriers of a process set are one, matched by
        their order.

    Raises ``InvalidArgumentError`` if this rank is not in the process set, ``JobFailedError`` if
    the job has failed.
    """
    job = current()
    communicator = communicator_of(process_set, job)
    # One barrier is as good as another: one name for all of them is learned, and registered once.
    whole_name = "barrier" if name is None else f"barrier.{name}"
    spec = TensorSpec(whole_name, CollectiveKind.BARRIER, 0, communicator=communicator.number)
    finished(start(job, None, [(spec, _NOTHING, _NOTHING)], awaited=True))


@uncompiled
def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the root's values, in place. Call it before the first step. Blocks until they
    are there.

    params: ``model.state_dict()`` or ``model.named_parameters()``, with the same names on all
        ranks.
    root_rank: whose values they are; its number in the job, also with a process set.
    process_set: the ranks that take part, the root among them. Default: all.
    """
    if not isinstance(params, Iterable):
        raise InvalidArgumentError(
            f"params must be model.state_dict() or model.named_parameters(), not a {type(params).__name__}"
        )
    named = list(params.items() if isinstance(params, Mapping) else params)
    for entry in named:
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)):
            raise InvalidArgumentError(
                "params must be pairs of name and tensor, as model.state_dict() and "
                f"model.named_parameters() give them, not {_called(entry)}"
            )
        name, value = entry
        if name.rpartition(".")[2] == "_extra_state" and not isinstance(value, torch.Tensor):
            raise InvalidArgumentError(
                f"'{name}' is what a module's get_extra_state() returns, which can't be changed in place. "
                "Give model.named_parameters() and named_buffers(), or load all of the root's: "
                "model.load_state_dict(hvd.broadcast_object(model.state_dict(), root_rank))"
            )
        if isinstance(value, Mapping):
            raise InvalidArgumentError(
                f"'{name}' is a {type(value).__name__}, not a tensor. For an optimizer's state: "
                "hvd.broadcast_optimizer_state(optimizer, root_rank)"
            )
    broadcast_all([(name, value) for name, value in named if value is not None], root_rank, process_set)


def _called(entry: object) -> str:
    if isinstance(entry, torch.Tensor):
        return "bare tensors"
    return f"a {type(entry).__name__}"


def broadcast_all(named: list[tuple[str, torch.Tensor]], root_rank: int, process_set: ProcessSet) -> None:
    """In place. As much is in flight at a time as the arena has room for, where it is copied."""
    job = current()
    communicator = communicator_of(process_set, job)
    # Each rank may have an order of its own.
    work = sorted(
        (
            (broadcast_spec(tensor, f"broadcast.{name}", root_rank, communicator.number), tensor, tensor)
            for name, tensor in named
        ),
        key=lambda entry: entry[0].name,
    )
    if len(work) > 1:
        # The root says which go together: ranks that disagree in a tensor would wait for others.
        ends = torch.tensor(_run_ends([tensor.nbytes for _, tensor, _ in work]), device="cpu")
        spec = broadcast_spec(ends, f"{work[0][0].name}, and others", root_rank, communicator.number)
        finished(start(job, None, [(spec, ends, ends)]))
        for first, end in itertools.pairwise([0, *sorted(set(ends.tolist()))]):
            finished(start(job, None, work[first:end]))
    elif work:
        finished(start(job, None, work))


def _run_ends(sizes: list[int]) -> list[int]:
    """For each tensor the number behind the last that is in flight with it."""
    ends: list[int] = []
    while len(ends) < len(sizes):
        rest = itertools.accumulate(sizes[len(ends) :])
        count = max(1, sum(1 for _ in itertools.takewhile(_IN_FLIGHT_BYTES.__ge__, rest)))
        ends += [len(ends) + count] * count
    return ends
