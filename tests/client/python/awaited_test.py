"""Which functions of ringd.torch submit what they wait for next, against a context that keeps
account."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import ringd
import ringd.torch as hvd
import torch
from ringd import _ringd
from ringd.torch import job as jobs

from tests.client.python.doubling_account import Account


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    context = Account()
    monkeypatch.setattr(jobs, "_job", jobs.Job(context))  # type: ignore[arg-type]
    return context


def test_the_extension_has_it() -> None:
    assert callable(_ringd.Context.submit_awaited)


@pytest.mark.parametrize(
    "call",
    [
        lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name="one"),
        lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="one"),
        lambda tensor: hvd.allreduce(tensor.requires_grad_(), op=hvd.Sum, name="one").detach(),
    ],
)
def test_one_tensor_that_is_waited_for(
    account: Account, call: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    result = call(torch.tensor([1.0, 2.0]))
    assert result.tolist() == [2.0, 4.0]
    assert account.calls == ["submit_awaited", "wait done"]


def test_its_gradient_too(account: Account) -> None:
    tensor = torch.ones(2, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, name="one").sum().backward()
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [2.0, 2.0]
    assert account.calls == ["submit_awaited", "wait done"] * 2


def test_an_output_that_is_not_dense(account: Account) -> None:
    matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    hvd.allreduce_(matrix[:, 0], op=hvd.Sum, name="column")
    assert matrix.tolist() == [[2.0, 2.0], [6.0, 4.0]]
    assert account.calls == ["submit_awaited", "wait done"]


def test_barriers(account: Account) -> None:
    hvd.barrier()
    assert account.calls == ["submit_awaited", "wait done"]


def test_what_is_not_waited_for_at_once(account: Account) -> None:
    hvd.synchronize(hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="a"))
    hvd.synchronize(hvd.allreduce_async_(torch.ones(1), op=hvd.Sum, name="a"))
    assert account.calls == ["submit", "wait for 1"] * 2
    account.calls.clear()
    hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], op=hvd.Sum, name="b")
    assert account.calls == ["submit", "submit", "wait for 2"]
    account.calls.clear()
    hvd.broadcast_(torch.ones(1), 0, "c")
    assert account.calls == ["submit", "wait for 1"]


def test_an_interrupt_leaves_the_tensors_with_the_job(account: Account) -> None:
    account.interrupted = True
    tensor = torch.ones(1)
    with pytest.raises(KeyboardInterrupt):
        hvd.allreduce_(tensor, op=hvd.Sum, name="interrupted")
    (handle,) = jobs.current().in_flight
    assert any(kept.data_ptr() == tensor.data_ptr() for kept in handle._kept)


def test_what_is_refused_keeps_nothing(account: Account) -> None:
    account.refuses_after = 0
    for call in (hvd.allreduce_, hvd.allreduce_async_):
        with pytest.raises(ringd.ResourceExhaustedError):
            call(torch.ones(1), op=hvd.Sum, name="refused")
    assert not jobs.current().in_flight


def test_of_a_group_that_is_refused_in_part_the_rest_stays_with_the_job(account: Account) -> None:
    account.refuses_after = 1
    tensors = [torch.ones(1), torch.ones(2)]
    with pytest.raises(ringd.ResourceExhaustedError):
        hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="group")
    (handle,) = jobs.current().in_flight
    assert {kept.data_ptr() for kept in handle._kept} == {tensors[0].data_ptr()}
