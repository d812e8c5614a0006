"""One rank's tensors, objects, parameters and optimizer state for all, and barriers."""

from __future__ import annotations

import ctypes
import itertools
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ringd.errors import InvalidArgumentError
from ringd.torch import cuda_streams
from ringd.torch.job import Communicator, current
from ringd.torch.operations import Handle, broadcast_spec, check_is_tensor, check_tensor, start, synchronize
from ringd.torch.process_set import ProcessSet, communicator_of, global_process_set
from ringd.torch.uncompiled import uncompiled
from ringd.types import CollectiveKind, TensorSpec

# Objects travel in tensors of whole powers of two, so that few sizes have to be registered; large
# ones in multiples of so much.
_LEAST_OBJECT_BYTES = 1024
_ROUNDED_OBJECT_BYTES = 64 << 20
# Of a model's tensors: far below the arena's size (arena_bytes), and enough to keep lines busy.
_IN_FLIGHT_BYTES = 64 << 20
_CANNOT_PICKLE = -1


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
    if torch.is_grad_enabled() and tensor.requires_grad:
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(broadcast_async(tensor, root_rank, name, process_set))


@uncompiled
def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Writes the root's tensor into every rank's and returns it. Arguments: as ``broadcast``."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.arguments = (root_rank, name, process_set)
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

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
    registration = job.registration(spec)
    job.context.wait(job.context.submit_awaited(registration, 0, 0))


def _pickled(obj: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        try:
            return pickle.dumps(obj)
        except Exception as error:
            raise InvalidArgumentError(
                f"broadcast_object: {error}. Functions and classes of the program itself need the "
                "package cloudpickle, on every node: pip install cloudpickle"
            ) from error
    return cloudpickle.dumps(obj)


@uncompiled
def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's `obj`, for all ranks. Other ranks' `obj` is ignored. Blocks until it is there.

    obj: what cloudpickle takes, as with Horovod: also functions, lambdas and classes of the program
        itself. Where the package cloudpickle is not installed: what pickle takes.
    root_rank: whose object it is; its number in the job, also with a process set. Default: 0.
    name: the same on all ranks. Default: unnamed calls are matched by their order.
    process_set: the ranks that take part, the root among them. Default: all.
    """
    job = current()
    communicator = communicator_of(process_set, job)
    names = communicator.automatic_names
    base = names.next("broadcast_object") if name is None else f"broadcast_object.{name}"
    is_root = job.place.rank == root_rank
    content = b""
    failure: Exception | None = None
    if is_root:
        try:
            content = _pickled(obj)
        except Exception as error:  # the others are waiting: tell them before anything else
            failure = error
    # Objects are the host's, whatever the program's default device is.
    announced = torch.tensor(_CANNOT_PICKLE if failure is not None else len(content), device="cpu")
    broadcast_(announced, root_rank, f"{base}.size", process_set)
    size = int(announced)
    if failure is not None:
        raise failure
    if size == _CANNOT_PICKLE:
        raise InvalidArgumentError(f"{base}: rank {root_rank} could not pickle its object")
    if is_root and communicator.size == 1:
        return obj
    step = min(1 << max(size - 1, 0).bit_length(), _ROUNDED_OBJECT_BYTES)
    rounded = max(_LEAST_OBJECT_BYTES, -(-size // step) * step)
    buffer = torch.empty(rounded, dtype=torch.uint8, device="cpu")
    if is_root:
        buffer[:size] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    broadcast_(buffer, root_rank, f"{base}.content", process_set)
    return obj if is_root else pickle.loads((ctypes.c_char * size).from_address(buffer.data_ptr()))


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
    _broadcast_all([(name, value) for name, value in named if value is not None], root_rank, process_set)


def _called(entry: object) -> str:
    if isinstance(entry, torch.Tensor):
        return "bare tensors"
    return f"a {type(entry).__name__}"


def _broadcast_all(named: list[tuple[str, torch.Tensor]], root_rank: int, process_set: ProcessSet) -> None:
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
        synchronize(start(job, None, [(spec, ends, ends)]))
        for first, end in itertools.pairwise([0, *sorted(set(ends.tolist()))]):
            synchronize(start(job, None, work[first:end]))
    elif work:
        synchronize(start(job, None, work))


def _run_ends(sizes: list[int]) -> list[int]:
    """For each tensor the number behind the last that is in flight with it."""
    ends: list[int] = []
    while len(ends) < len(sizes):
        rest = itertools.accumulate(sizes[len(ends) :])
        count = max(1, sum(1 for _ in itertools.takewhile(_IN_FLIGHT_BYTES.__ge__, rest)))
        ends += [len(ends) + count] * count
    return ends


@dataclass(frozen=True)
class _TensorPlace:
    """Stands for a tensor in a state whose tensors travel by themselves."""

    index: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    #: The order of its elements in memory.
    strides: tuple[int, ...]
    on_gpu: bool


def _without_tensors(state: Any, tensors: list[torch.Tensor]) -> Any:
    """`state` with places for its tensors, which are appended to `tensors`."""
    if isinstance(state, torch.Tensor):
        tensors.append(state)
        on_gpu = cuda_streams.is_on_gpu(state)
        strides = torch.empty_like(state, device="meta").stride()
        return _TensorPlace(len(tensors) - 1, state.dtype, tuple(state.shape), strides, on_gpu)
    if isinstance(state, dict):
        return {key: _without_tensors(value, tensors) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_without_tensors(value, tensors) for value in state)
    return state


def _places_in(state: Any) -> Iterable[_TensorPlace]:
    if isinstance(state, _TensorPlace):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _places_in(value)
    elif type(state) in (list, tuple):
        for value in state:
            yield from _places_in(value)


def _with_tensors(state: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(state, _TensorPlace):
        return tensors[state.index]
    if isinstance(state, dict):
        return {key: _with_tensors(value, tensors) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_with_tensors(value, tensors) for value in state)
    return state


def _memory_for(place: _TensorPlace, on_gpu: torch.Tensor | None) -> torch.Tensor:
    """A tensor as the root's. `on_gpu`: one on this rank's GPU, if it has one; else the broadcast
    says in what the ranks differ."""
    if place.on_gpu and on_gpu is not None:
        memory = cuda_streams.empty_beside(on_gpu, place.shape, place.dtype)
    else:
        memory = torch.empty(place.shape, dtype=place.dtype, device="cpu")
    return memory.as_strided_(place.shape, place.strides)


def _keep_form(loaded: Any, skeleton: Any, tensors: list[torch.Tensor]) -> None:
    """``load_state_dict`` has given tensors their parameter's type, but the root goes on with its
    own: so do the others."""
    if isinstance(skeleton, _TensorPlace):
        roots = tensors[skeleton.index]
        if isinstance(loaded, torch.Tensor) and loaded.dtype != roots.dtype and loaded.shape == roots.shape:
            loaded.data = roots.to(loaded.device)
    elif isinstance(skeleton, dict) and isinstance(loaded, dict):
        for key, value in skeleton.items():
            _keep_form(loaded.get(key), value, tensors)
    elif type(skeleton) in (list, tuple) and type(loaded) is type(skeleton):
        for mine, value in zip(loaded, skeleton, strict=False):
            _keep_form(mine, value, tensors)


@uncompiled
def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the root's optimizer state and settings, as after loading its
    ``state_dict()``. Tensors of the state have the root's type and order in memory then. Blocks
    until they are there.

    The other ranks need no state of their own, so a checkpoint has to be loaded on the root only.

    optimizer: distributed or not, with the same parameters on all ranks.
    root_rank: whose state it is; its number in the job, also with a process set.
    model: not needed; programs written for Horovod may give it.
    process_set: the ranks that take part, the root among them. Default: all.

    Raises ``InvalidArgumentError`` on a rank whose optimizer is of another kind, or has other
    parameters, than the root's.
    """
    tensors: list[torch.Tensor] = []
    is_root = current().place.rank == root_rank
    skeleton = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, "optimizer_state", process_set)
    if not is_root:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        on_gpu = next(filter(cuda_streams.is_on_gpu, parameters), None)
        tensors = [_memory_for(place, on_gpu) for place in _places_in(skeleton)]
    _broadcast_all(
        [(f"optimizer_state.{index}", tensor.detach()) for index, tensor in enumerate(tensors)],
        root_rank,
        process_set,
    )
    if not is_root:
        own = optimizer.state_dict()
        had = [set(group) for group in optimizer.param_groups]
        try:
            optimizer.load_state_dict(_with_tensors(skeleton, tensors))
            # torch itself takes another kind of optimizer's settings, and misses its own in step().
            # What a group had before counts: loading puts names into LBFGS's defaults that no
            # group of it has.
            defaults = getattr(optimizer, "defaults", ())
            for before, group in zip(had, optimizer.param_groups, strict=False):
                missing = [name for name in defaults if name in before and name not in group]
                if missing:
                    optimizer.load_state_dict(own)
                    raise ValueError(f"it has no {', '.join(missing)}: is it of another kind?")
        except (ValueError, KeyError) as error:
            raise InvalidArgumentError(
                f"rank {root_rank}'s optimizer state does not fit this rank's optimizer: {error}"
            ) from error
        _keep_form(optimizer.state_dict(), skeleton, tensors)
