"""Arguments that are wrong, or Horovod's: the error says what to do. One rank alone, without a
ringd."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ringd
import ringd.torch as hvd
import torch
from torch import nn


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("RINGD_SOCKET", raising=False)
    hvd.init()
    yield
    hvd.shutdown()


def distributed(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options
    )


CALLS: list[Callable[[Any], Any]] = [
    hvd.allreduce,
    hvd.allreduce_,
    hvd.allreduce_async,
    lambda value: hvd.allreduce(value, name="loss", compression=hvd.Compression.fp16),
    lambda value: hvd.grouped_allreduce([torch.ones(1), value]),
    lambda value: hvd.broadcast(value, 0),
    lambda value: hvd.broadcast_(value, 0),
    lambda value: hvd.broadcast_parameters({"x": value}, 0),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [3.0, [1.0], memoryview(b"abc")], ids=["number", "list", "view"])
def test_what_is_no_tensor_is_named(call: Callable[[Any], Any], value: Any) -> None:
    words = rf"expected a torch\.Tensor, got {type(value).__name__}; torch\.as_tensor"
    with pytest.raises(ringd.InvalidArgumentError, match=words):
        call(value)


@pytest.mark.parametrize("op", [0, 1, "sum"])
def test_an_operator_that_is_a_number_is_refused_as_horovod_numbers_them_otherwise(op: Any) -> None:
    model = nn.Linear(1, 1)
    for call in (lambda: hvd.allreduce(torch.ones(1), op=op), lambda: distributed(model, op=op)):
        with pytest.raises(ringd.InvalidArgumentError, match=r"by its name, hvd\.Average"):
            call()


def test_process_sets_are_inits_second_argument_as_horovods() -> None:
    hvd.shutdown()
    hvd.init(None, "dynamic")
    assert hvd.size() == 1


@pytest.mark.parametrize("call", [hvd.poll, hvd.synchronize])
def test_what_is_no_handle_is_named(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="_async_ returns, got NoneType"):
        call(None)


def test_what_is_no_state_is_named() -> None:
    for wrong in (None, nn.Linear(1, 1)):
        with pytest.raises(ringd.InvalidArgumentError, match=r"must be model\.state_dict\(\)"):
            hvd.broadcast_parameters(wrong, 0)  # type: ignore[arg-type]


def test_what_broadcast_parameters_does_not_take_is_told_with_the_call_that_does() -> None:
    model = nn.Linear(1, 1)
    bare: Any = model.parameters()
    with pytest.raises(ringd.InvalidArgumentError, match=r"not bare tensors"):
        hvd.broadcast_parameters(bare, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ringd.InvalidArgumentError, match=r"hvd\.broadcast_optimizer_state"):
        hvd.broadcast_parameters(optimizer.state_dict(), 0)


def test_extra_state_of_a_module_is_told_apart() -> None:
    class WithState(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"a": 1}

    state = nn.Sequential(WithState(1, 1)).state_dict()
    with pytest.raises(ringd.InvalidArgumentError, match=r"'0\._extra_state' .*hvd\.broadcast_object"):
        hvd.broadcast_parameters(state, 0)


def test_arguments_of_horovods_are_taken_where_they_do_no_harm() -> None:
    hvd.init(None)
    distributed(nn.Linear(1, 1), num_groups=2, groups=None, sparse_as_dense=False)


def test_arguments_of_horovods_that_would_do_harm_are_refused_with_advice() -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="sparse=False"):
        distributed(nn.Linear(1, 1), sparse_as_dense=True)
    with pytest.raises(ringd.InvalidArgumentError, match=r"process_sets=\[hvd\.ProcessSet"):
        hvd.init([0, 1])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_a_scheduler_made_before_wrapping_sees_the_steps() -> None:
    model = nn.Linear(2, 1)
    wrapped = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(wrapped, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(wrapped, model.named_parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_distributed_optimizer_is_not_copied(copied: Callable[[Any], Any]) -> None:
    optimizer = distributed(nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"state_dict\(\)"):
        copied(optimizer)
    copied(optimizer.state_dict())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_are_moved_as_pairs(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1 + 2j, 3 - 4j]], dtype=dtype)
    for value in (tensor, tensor.conj(), tensor.t()):
        reduced = hvd.allreduce(value, op=hvd.Sum, postscale_factor=2.0)
        assert reduced.dtype == dtype
        assert torch.equal(reduced, 2 * value)
        in_place = value.clone(memory_format=torch.preserve_format)
        assert torch.equal(hvd.allreduce_(in_place, op=hvd.Sum, postscale_factor=2.0), 2 * value)
        assert torch.equal(hvd.broadcast(value, 0), value)
    hvd.broadcast_parameters({"buffer": tensor.conj()}, 0)
    with pytest.raises(ringd.InvalidArgumentError, match="op=Sum and Average, not MAX"):
        hvd.allreduce(tensor, op=hvd.Max)


def test_a_sum_of_complex_numbers_has_a_gradient() -> None:
    tensor = torch.tensor([1 + 2j], requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, postscale_factor=2.0).abs().square().sum().backward()
    assert torch.equal(tensor.grad, 8 * tensor.detach())


def test_groups_may_be_generators() -> None:
    tensors = [torch.ones(3), torch.ones(2)]
    sums = hvd.grouped_allreduce((tensor for tensor in tensors), op=hvd.Sum)
    assert [tensor.tolist() for tensor in sums] == [[1.0] * 3, [1.0] * 2]
    assert len(hvd.grouped_allreduce_((tensor for tensor in tensors), op=hvd.Sum)) == 2
    assert len(hvd.synchronize(hvd.grouped_allreduce_async(iter(tensors), op=hvd.Sum))) == 2


def test_a_tensor_without_memory_is_refused_by_its_type() -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="no memory of its own.*to_local"):
        hvd.allreduce(torch._efficientzerotensor(3), name="x")


@pytest.mark.filterwarnings("error")
def test_one_rank_alone_hears_of_no_second_reduction_after_a_step_that_is_left_out() -> None:
    model = nn.Linear(2, 2)
    optimizer = distributed(model)
    for _ in range(2):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.synchronize()
    with pytest.warns(UserWarning, match="reduced twice"):
        optimizer.synchronize()
