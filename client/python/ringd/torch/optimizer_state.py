"""One rank's optimizer state for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ringd.errors import InvalidArgumentError
from ringd.torch import cuda_streams
from ringd.torch.broadcast import broadcast_all
from ringd.torch.job import current
from ringd.torch.objects import broadcast_object
from ringd.torch.operations import checked_root
from ringd.torch.process_set import ProcessSet, global_process_set
from ringd.torch.uncompiled import uncompiled


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
    root_rank = checked_root(root_rank)
    is_root = current().place.rank == root_rank
    skeleton = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, "optimizer_state", process_set)
    if not is_root:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        on_gpu = next(filter(cuda_streams.is_on_gpu, parameters), None)
        tensors = [_memory_for(place, on_gpu) for place in _places_in(skeleton)]
    broadcast_all(
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
