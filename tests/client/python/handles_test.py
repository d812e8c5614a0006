"""What becomes of handles that are polled, refused half-way or interrupted, and of tensors that
share memory, against a context that keeps account."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import ringd
import ringd.torch as hvd
import torch
from ringd.torch import cuda_streams
from ringd.torch import job as jobs
from ringd.torch.handle import take_out_abandoned

from tests.client.python.doubling_account import Account


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    context = Account()
    monkeypatch.setattr(jobs, "_job", jobs.Job(context))  # type: ignore[arg-type]
    return context


def test_tensors_of_one_memory_are_each_reduced_from_what_was_there(account: Account) -> None:
    tied = torch.tensor([1.0, 2.0, 3.0, 4.0])
    views = [tied, tied, tied[1:3], tied[::2], torch.ones(1), tied[:0]]
    hvd.grouped_allreduce_(views, op=hvd.Sum, name="tied")
    assert tied.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert views[4].tolist() == [2.0]
    assert account.calls == ["submit"] * len(views) + [f"wait for {len(views)}"]


def test_so_are_those_that_go_through_memory_of_the_host(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_streams, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(cuda_streams, "copy_to_host", torch.Tensor.clone)
    monkeypatch.setattr(jobs.current().device, "placed", lambda spec, tensor: spec)
    tied = torch.tensor([1.0, 2.0])
    hvd.grouped_allreduce_([tied, tied], op=hvd.Sum, name="tied")
    assert tied.tolist() == [2.0, 4.0]


def test_neighbours_in_one_memory_are_reduced_where_they_are(account: Account) -> None:
    flat = torch.tensor([1.0, 2.0, 3.0, 4.0])
    handle = hvd.grouped_allreduce_async_([flat[2:], flat[:2]], op=hvd.Sum, name="neighbours")
    assert flat.tolist() == [2.0, 4.0, 6.0, 8.0]  # the account has written already
    hvd.synchronize(handle)
    assert flat.tolist() == [2.0, 4.0, 6.0, 8.0]


def test_a_handle_is_in_flight_while_another_thread_synchronizes_it(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, goes_on = threading.Event(), threading.Event()

    def wait_all(operations: list[int], timeout_ms: int = -1) -> None:
        waits.set()
        assert goes_on.wait(20)

    def taken_out(operation: int) -> bool:
        raise ringd.NotFoundError("another thread has waited for it")

    monkeypatch.setattr(account, "wait_all", wait_all)
    monkeypatch.setattr(account, "test", taken_out)
    handle = hvd.grouped_allreduce_async([torch.ones(1), torch.ones(1)], op=hvd.Sum, name="polled")
    thread = threading.Thread(target=hvd.synchronize, args=(handle,))
    thread.start()
    try:
        assert waits.wait(20)
        assert not hvd.poll(handle)
    finally:
        goes_on.set()
        thread.join()
    assert hvd.poll(handle)


def test_the_rest_of_a_refused_group_is_taken_out_once_it_has_ended(account: Account) -> None:
    account.refuses_after = 1
    account.ended = False
    with pytest.raises(ringd.ResourceExhaustedError):
        hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], op=hvd.Sum, name="group")
    account.refuses_after = None
    job = jobs.current()
    hvd.allreduce(torch.ones(1), op=hvd.Sum, name="next")
    assert job.has_in_flight(0)
    account.ended = True
    account.calls.clear()
    hvd.allreduce(torch.ones(1), op=hvd.Sum, name="next")
    assert account.calls == ["wait for 1", "submit_awaited", "wait done"]
    assert not job.in_flight
    assert not job.abandoned


def test_of_a_refused_group_nothing_is_written_later(account: Account) -> None:
    account.refuses_after = 1
    account.ended = False
    matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ringd.ResourceExhaustedError):
        hvd.grouped_allreduce_([matrix[:, 0], matrix[:, 1]], op=hvd.Sum, name="group")
    account.refuses_after = None
    account.ended = True
    matrix.fill_(5.0)
    hvd.allreduce_(matrix, op=hvd.Sum, name="again")
    assert matrix.tolist() == [[10.0, 10.0], [10.0, 10.0]]
    assert not jobs.current().in_flight


def test_a_call_that_was_interrupted_is_taken_out_once_it_has_ended(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_all(operations: list[int], timeout_ms: int = -1) -> None:
        raise KeyboardInterrupt

    job = jobs.current()
    account.ended = False
    with monkeypatch.context() as patch:
        patch.setattr(account, "wait_all", wait_all)
        for call in (hvd.barrier, lambda: hvd.broadcast_(torch.ones(1), 0)):
            with pytest.raises(KeyboardInterrupt):
                call()
    assert len(job.in_flight) == 2
    account.ended = True
    take_out_abandoned(job)
    assert not job.in_flight


def test_of_one_that_the_program_holds_an_interrupt_leaves_the_wait_to_it(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_all(operations: list[int], timeout_ms: int = -1) -> None:
        raise KeyboardInterrupt

    handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="held")
    with monkeypatch.context() as patch:
        patch.setattr(account, "wait_all", wait_all)
        with pytest.raises(KeyboardInterrupt):
            hvd.synchronize(handle)
    take_out_abandoned(jobs.current())
    assert jobs.current().has_in_flight(0)
    assert hvd.synchronize(handle).tolist() == [2.0]


@pytest.mark.parametrize("root", ["0", 0.7, None])
@pytest.mark.parametrize(
    "call",
    [
        lambda root: hvd.broadcast(torch.ones(1, requires_grad=True), root),
        lambda root: hvd.broadcast_async_(torch.ones(1), root),
        lambda root: hvd.broadcast_object({}, root),
        lambda root: hvd.broadcast_parameters({"weight": torch.ones(1)}, root),
        lambda root: hvd.broadcast_optimizer_state(torch.optim.SGD([torch.ones(1)], 0.1), root),
    ],
)
def test_a_root_is_a_number(account: Account, call: Callable[[Any], Any], root: Any) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="root_rank must be a rank's number, not"):
        call(root)
    assert not account.calls


def test_inference_tensors_that_are_not_dense_are_written_in_place(account: Account) -> None:
    with torch.inference_mode():
        matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t()
    hvd.allreduce_(matrix, op=hvd.Sum, name="inference")
    assert matrix.tolist() == [[2.0, 6.0], [4.0, 8.0]]
