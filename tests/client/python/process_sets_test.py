"""Process sets of ringd.torch, against a context that keeps account and speaks for the other
ranks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import ringd
import ringd.torch as hvd
import torch
from ringd.torch import job as jobs
from ringd.types import CollectiveKind

from tests.client.python.process_set_account import Account, start


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return start(monkeypatch)


def test_ids_count_from_1_and_members_alone_make_a_communicator(account: Account) -> None:
    pair = hvd.add_process_set([2, 0])
    others = hvd.ProcessSet(torch.tensor([1, 3]))
    assert others.process_set_id is None
    assert hvd.add_process_set(others) is others
    third = hvd.add_process_set([0, 1])
    assert account.created == [("process_set.1", [0, 2]), ("process_set.3", [0, 1])]
    assert [s.process_set_id for s in (hvd.global_process_set, pair, others, third)] == [0, 1, 2, 3]
    assert [s.ranks for s in (hvd.global_process_set, pair, others)] == [[0, 1, 2, 3], [0, 2], [1, 3]]
    assert [s.size() for s in (hvd.global_process_set, pair, others)] == [4, 2, 2]
    assert [s.included() for s in (hvd.global_process_set, pair, others)] == [True, True, False]
    assert str(pair) == "ProcessSet(process_set_id=1, ranks=[0, 2])"


def test_a_rank_of_a_set_is_its_place_there(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, rank=2)
    assert hvd.ProcessSet([3, 2, 0]).rank() == 1
    assert hvd.global_process_set.rank() == 2
    with pytest.raises(ValueError, match="rank 2 is not in the process set of ranks 0, 1"):
        hvd.ProcessSet([0, 1]).rank()


CALLS: dict[str, Callable[[torch.Tensor, hvd.ProcessSet], Any]] = {
    "allreduce": lambda x, s: hvd.allreduce(x, process_set=s),
    "allreduce_": lambda x, s: hvd.allreduce_(x, process_set=s),
    "allreduce_async": lambda x, s: hvd.synchronize(hvd.allreduce_async(x, process_set=s)),
    "allreduce_async_": lambda x, s: hvd.synchronize(hvd.allreduce_async_(x, process_set=s)),
    "grouped_allreduce": lambda x, s: hvd.grouped_allreduce([x], process_set=s),
    "grouped_allreduce_": lambda x, s: hvd.grouped_allreduce_([x], process_set=s),
    "grouped_allreduce_async": lambda x, s: hvd.synchronize(hvd.grouped_allreduce_async([x], process_set=s)),
    "grouped_allreduce_async_": lambda x, s: hvd.synchronize(
        hvd.grouped_allreduce_async_([x], process_set=s)
    ),
    "broadcast": lambda x, s: hvd.broadcast(x, 0, process_set=s),
    "broadcast_": lambda x, s: hvd.broadcast_(x, 0, process_set=s),
    "broadcast_async": lambda x, s: hvd.synchronize(hvd.broadcast_async(x, 0, process_set=s)),
    "broadcast_async_": lambda x, s: hvd.synchronize(hvd.broadcast_async_(x, 0, process_set=s)),
    "broadcast_object": lambda x, s: hvd.broadcast_object(1, process_set=s),
    "broadcast_parameters": lambda x, s: hvd.broadcast_parameters({"x": x}, 0, process_set=s),
    "broadcast_optimizer_state": lambda x, s: hvd.broadcast_optimizer_state(
        torch.optim.SGD([x], lr=0.1), 0, process_set=s
    ),
    "barrier": lambda x, s: hvd.barrier(s),
    "SyncBatchNorm": lambda x, s: hvd.SyncBatchNorm(3, process_set=s)(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_reaches_the_set_s_members_and_no_others(account: Account, name: str) -> None:
    call = CALLS[name]
    mine, theirs = hvd.add_process_set([0, 2]), hvd.add_process_set([1, 2])
    with pytest.raises(ringd.InvalidArgumentError, match=r"rank 0 is not in the process set of ranks 1, 2"):
        call(torch.ones(2, 3), theirs)
    with pytest.raises(ringd.InvalidArgumentError, match="must be a ProcessSet"):
        call(torch.ones(2, 3), [0, 2])  # type: ignore[arg-type]
    with pytest.raises(ringd.FailedPreconditionError, match=r"ranks 0, 1 is not registered"):
        call(torch.ones(2, 3), hvd.ProcessSet([0, 1]))
    assert not account.submitted
    if name == "SyncBatchNorm":  # nobody answers with the others' sums
        with pytest.raises(ValueError, match="two values"):
            call(torch.ones(1, 3), mine)
    else:
        call(torch.ones(2, 3), mine)
    assert {spec.communicator for spec in account.submitted} == {101}


def test_gradients_of_operations_reach_the_same_set(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    x = torch.ones(3, requires_grad=True)
    hvd.allreduce(x, process_set=pair, name="a").sum().backward()
    hvd.grouped_allreduce([x], process_set=pair, name="b")[0].sum().backward()
    hvd.broadcast(x, 0, process_set=pair, name="c").sum().backward()
    assert len(account.submitted) == 6
    assert {spec.communicator for spec in account.submitted} == {101}


def test_unnamed_operations_are_counted_by_set(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    for process_set in (pair, hvd.global_process_set, pair):
        hvd.allreduce(torch.ones(1), process_set=process_set)
    names = [(spec.communicator, spec.name) for spec in account.submitted]
    assert names == [(101, "allreduce.noname.0"), (0, "allreduce.noname.0"), (101, "allreduce.noname.1")]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "must have a rank"),
        ([1, 0, 1], "rank 1 is there twice"),
        ([-1, 0], "ranks count from 0"),
        ([0, 4], "rank 4 is none of the job's 4"),
        ([0.5], "a list of ranks"),
        (7, "a list of ranks"),
    ],
)
def test_impossible_ranks_are_refused_before_others_are_asked(
    account: Account, ranks: Any, words: str
) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match=words):
        hvd.add_process_set(ranks)
    assert not account.live


def test_a_set_that_is_there_is_not_added_again(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    for again in (pair, hvd.ProcessSet([2, 0])):
        with pytest.raises(ringd.AlreadyExistsError, match=r"process set 1 \(ranks 0, 2\)"):
            hvd.add_process_set(again)
    for everybody in (range(4), hvd.global_process_set):
        with pytest.raises(ringd.AlreadyExistsError, match="global"):
            hvd.add_process_set(everybody)
    assert len(account.created) == 1


def test_many_ranks_are_not_all_spelt_out(account: Account) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match=r"15, \.\.\. \(500 in all\): rank 499 is none"):
        hvd.add_process_set(range(500))


def test_ranks_that_ask_for_something_else_are_named(account: Account) -> None:
    account.asks_otherwise = [1, 3]
    with pytest.raises(ringd.InvalidArgumentError, match=r"asks for a set of ranks 0, 2, but ranks 1, 3 ask"):
        hvd.add_process_set([0, 2])
    assert not account.created
    account.asks_otherwise = []
    pair = hvd.add_process_set([0, 2])
    assert pair.process_set_id == 1
    account.asks_otherwise = [2]
    with pytest.raises(ringd.InvalidArgumentError, match=r"the removal of process set 1 .*, but rank 2 asks"):
        hvd.remove_process_set(pair)
    assert pair.process_set_id == 1
    assert not account.destroyed


def test_what_one_rank_can_t_create_no_rank_has(account: Account) -> None:
    account.has_trouble = [2]
    with pytest.raises(ringd.FailedPreconditionError, match="rank 2 could not create"):
        hvd.add_process_set([0, 2])
    assert account.destroyed == [101]
    account.has_trouble = []
    account.refusal = ringd.ResourceExhaustedError("the job has 1,024")
    failed = hvd.ProcessSet([0, 2])
    with pytest.raises(ringd.ResourceExhaustedError, match="1,024"):
        hvd.add_process_set(failed)
    assert failed.process_set_id is None
    account.refusal = None
    # A name is not used twice: one of them may be there yet.
    assert hvd.add_process_set(failed).process_set_id == 3
    assert account.created[-1] == ("process_set.3", [0, 2])


def test_after_an_interrupt_no_further_call_is_taken_for_a_step_of_the_first(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = hvd.add_process_set([0, 2])

    def interrupted(registration: int, source: int, destination: int) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(account, "submit_awaited", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hvd.add_process_set([0, 1])
    for call in (lambda: hvd.add_process_set([0, 1]), lambda: hvd.remove_process_set(pair)):
        with pytest.raises(ringd.FailedPreconditionError, match="was interrupted on this rank"):
            call()
    # What was there goes on.
    assert hvd.allreduce(torch.ones(1), name="a", process_set=pair) is not None


def test_a_removed_set_is_forgotten_and_may_be_added_again(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    hvd.allreduce(torch.ones(1), process_set=pair, name="x")
    assert hvd.remove_process_set(pair)
    assert account.destroyed == [101]
    assert {spec.communicator for spec in jobs.current()._registrations} == {0}
    assert pair.process_set_id is None
    with pytest.raises(ringd.FailedPreconditionError, match="not registered"):
        hvd.allreduce(torch.ones(1), process_set=pair, name="x")
    with pytest.raises(ringd.FailedPreconditionError, match="not registered"):
        hvd.remove_process_set(pair)
    assert hvd.add_process_set(pair).process_set_id == 2
    hvd.allreduce(torch.ones(1), process_set=pair, name="x")
    assert [spec.communicator for spec in account.submitted] == [101, 102]


def test_a_set_in_use_is_not_removed_on_any_rank(account: Account) -> None:
    pair, others = hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])
    handle = hvd.allreduce_async(torch.ones(1), process_set=pair)
    with pytest.raises(ringd.FailedPreconditionError, match="on rank 0 operations of it have not been"):
        hvd.remove_process_set(pair)
    hvd.synchronize(handle)
    account.has_trouble = [1]
    with pytest.raises(ringd.FailedPreconditionError, match="on rank 1 operations of it have not been"):
        hvd.remove_process_set(others)
    account.has_trouble = []
    assert [s.process_set_id for s in (pair, others)] == [1, 2]
    assert hvd.remove_process_set(others)
    assert hvd.remove_process_set(pair)
    assert account.destroyed == [101]


def test_the_global_set_stays(account: Account) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="can't be removed"):
        hvd.remove_process_set(hvd.global_process_set)


def test_shutdown_ends_all_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch)
    pair = hvd.add_process_set([0, 2])
    hvd.shutdown()
    assert pair.process_set_id is None
    assert hvd.global_process_set.ranks == []
    with pytest.raises(ringd.FailedPreconditionError, match=r"init\(\)"):
        hvd.add_process_set(pair)
    account = start(monkeypatch)
    with pytest.raises(ringd.FailedPreconditionError, match="not registered"):
        hvd.barrier(pair)
    assert hvd.add_process_set(pair).process_set_id == 1
    hvd.barrier(pair)
    assert [(spec.kind, spec.communicator) for spec in account.submitted] == [(CollectiveKind.BARRIER, 101)]


def test_copies_and_pickles_of_a_module_use_this_job_s_set(account: Account) -> None:
    pair = hvd.add_process_set([0, 2])
    for process_set in (pair, hvd.global_process_set):
        module = hvd.SyncBatchNorm(3, process_set=process_set)
        assert copy.deepcopy(module).process_set is process_set
        assert pickle.loads(pickle.dumps(module)).process_set is process_set
    unknown = pickle.loads(pickle.dumps(hvd.ProcessSet([1, 3])))
    assert (unknown.ranks, unknown.process_set_id) == ([1, 3], None)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("static", "or 'dynamic', not 'static'"), ([[0, 1]], r"\[0, 1\] is none"), ([None], "None is none")],
)
def test_init_refuses_what_is_no_process_set_before_it_joins(wrong: Any, words: str) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match=f"must be a list of ProcessSet, .*{words}"):
        hvd.init(process_sets=wrong)
    assert not hvd.is_initialized()


def test_init_again_names_sets_that_are_not_there(account: Account) -> None:
    pair = hvd.ProcessSet([0, 2])
    with pytest.raises(ringd.FailedPreconditionError, match="without the process set of ranks 0, 2"):
        hvd.init(process_sets=[pair])
    hvd.add_process_set(pair)
    hvd.init(process_sets=[pair, hvd.global_process_set])
    hvd.init(process_sets="dynamic")
