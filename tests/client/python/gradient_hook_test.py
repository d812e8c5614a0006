"""The hook that takes gradients from autograd into the library: what it does itself, and what it
leaves to Python. One rank alone, whose all-reduces double: no ringd is needed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ringd import _ringd
from ringd.torch import arena
from ringd.torch.job import Job
from torch import nn

from tests.client.python.hooked import LARGE, SMALL, Hooked
from tests.client.python.reduced import gradient_of


def test_not_armed_it_calls_the_function_that_it_was_given(job: Job) -> None:
    hooked = Hooked(job, SMALL, armed=False)
    hooked.backward()
    hooked.expect_left_to_python()
    with pytest.raises(ValueError, match="set_arena"):
        hooked.arm()


def test_what_the_function_raises_comes_out_of_the_backward_pass() -> None:
    parameter = nn.Parameter(torch.zeros(1))

    def slow(_: torch.Tensor) -> None:
        raise LookupError("slow")

    parameter.register_post_accumulate_grad_hook(_ringd.GradientHook(parameter, slow, {}, 1))
    with pytest.raises(LookupError, match="slow"):
        parameter.sum().backward()


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_a_gradient_stays_until_the_result_is_taken(job: Job, elements: int) -> None:
    hooked = Hooked(job, elements)
    for value in (1.0, 3.0):
        hooked.parameter.grad = None
        hooked.backward(value)
        hooked.expect_submitted()
        assert gradient_of(hooked.parameter).unique().tolist() == [value]
        assert not hooked.hook.was_changed()
        hooked.wait()
        assert not job.has_in_flight(0)
        assert gradient_of(hooked.parameter) is hooked.hook.arena
        assert gradient_of(hooked.parameter).unique().tolist() == [2 * value]


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_a_gradient_in_the_arena_is_accumulated_and_reduced_there(job: Job, elements: int) -> None:
    hooked = Hooked(job, elements)
    hooked.backward()
    hooked.wait()
    hooked.backward(5.0)
    hooked.expect_submitted()
    assert gradient_of(hooked.parameter) is hooked.hook.arena
    hooked.wait()
    assert gradient_of(hooked.parameter).unique().tolist() == [2 * (2 + 5)]


def a_view_that_was_kept(hooked: Hooked) -> Any:
    hooked.backward()
    hooked.wait()
    kept = gradient_of(hooked.parameter).view(-1)[1:]
    hooked.parameter.grad = None
    return kept


def a_tensor_that_was_kept(hooked: Hooked) -> Any:
    hooked.backward()
    hooked.wait()
    kept = gradient_of(hooked.parameter)
    hooked.parameter.grad = None
    return kept


def another_parameter_with_the_tensor(hooked: Hooked) -> Any:
    hooked.backward()
    hooked.wait()
    other = nn.Parameter(torch.zeros_like(hooked.parameter))
    other.grad = hooked.parameter.grad
    hooked.parameter.grad = None
    return other


def memory_replaced_through_data(hooked: Hooked) -> None:
    hooked.backward()
    hooked.wait()
    gradient_of(hooked.parameter).data = torch.zeros_like(hooked.parameter)


def memory_moved_for_other_processes(hooked: Hooked) -> None:
    hooked.backward()
    hooked.wait()
    gradient_of(hooked.parameter).share_memory_()
    hooked.parameter.grad = None


def a_gradient_that_is_strided(hooked: Hooked) -> None:
    hooked.parameter.grad = torch.zeros(2 * len(hooked.parameter))[::2]


def a_subclass(hooked: Hooked) -> None:
    class Own(torch.Tensor):
        pass

    hooked.parameter.grad = torch.zeros_like(hooked.parameter).as_subclass(Own)


def another_shape(hooked: Hooked) -> None:
    hooked.parameter.data = torch.zeros(len(hooked.parameter) // 2, 2)


def another_type(hooked: Hooked) -> None:
    hooked.parameter.data = hooked.parameter.data.double()


def a_registration_given_back(hooked: Hooked) -> None:
    hooked.job.context.unregister([hooked.registration])


def a_job_that_was_left(hooked: Hooked) -> None:
    hooked.job.context.close()


def no_pass_left(hooked: Hooked) -> None:
    hooked.hook.passes_left = 0


def memory_taken_away(hooked: Hooked) -> None:
    hooked.hook.set_arena(None)


@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize(
    "arrange",
    [
        a_view_that_was_kept,
        a_tensor_that_was_kept,
        another_parameter_with_the_tensor,
        memory_replaced_through_data,
        memory_moved_for_other_processes,
        a_gradient_that_is_strided,
        a_subclass,
        another_shape,
        another_type,
        a_registration_given_back,
        a_job_that_was_left,
        no_pass_left,
        memory_taken_away,
    ],
)
def test_what_is_unusual_is_left_to_python(job: Job, elements: int, arrange: Callable[[Hooked], Any]) -> None:
    hooked = Hooked(job, elements)
    kept = arrange(hooked)
    before = kept.clone() if isinstance(kept, torch.Tensor) else None
    hooked.backward(7.0)
    hooked.expect_left_to_python()
    assert kept is None or before is None or torch.equal(kept, before)


def test_after_the_job_a_gradient_is_left_to_python(job: Job) -> None:
    hooked = Hooked(job, LARGE)
    job.context.close()
    hooked.backward()
    hooked.expect_left_to_python()
    assert gradient_of(hooked.parameter) is not hooked.hook.arena


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_a_gradient_with_a_graph_is_left_to_python(job: Job, elements: int) -> None:
    hooked = Hooked(job, elements)
    hooked.parameter.square().sum().backward(create_graph=True)
    hooked.expect_left_to_python()
    assert gradient_of(hooked.parameter).grad_fn is not None


def test_a_sparse_gradient_is_left_to_python(job: Job) -> None:
    hooked = Hooked(job, SMALL)
    indices, values = torch.tensor([[0, 3]]), torch.ones(2)
    hooked.parameter.grad = torch.sparse_coo_tensor(indices, values, (SMALL,), check_invariants=True)
    hooked.hook(hooked.parameter)
    hooked.expect_left_to_python()


def test_a_gradient_that_is_not_in_the_host_s_memory_is_left_to_python(job: Job) -> None:
    """Also one that is only counted."""
    parameter: Any = SimpleNamespace(grad=torch.zeros(SMALL, device="meta"))
    hooked = Hooked(job, SMALL, passes=2)
    hook = _ringd.GradientHook(parameter, hooked.slow_calls.append, hooked.pending, 2)
    hook.enter(0, job.in_flight)
    hook.set_arena(arena.allocate(job, (SMALL,), torch.float32))
    hook.arm(job.context.raw, hooked.registration)
    hook(parameter)
    assert hooked.slow_calls == [parameter]
    assert hook.passes_left == 2


def test_a_gradient_in_flight_is_left_to_python(job: Job) -> None:
    hooked = Hooked(job, SMALL)
    hooked.backward()
    hooked.expect_submitted()
    hooked.hook.restart_count()
    hooked.backward()
    assert len(hooked.slow_calls) == 1
    hooked.wait()


def test_calls_with_something_else(job: Job) -> None:
    hooked = Hooked(job, SMALL)
    hooked.parameter.grad = torch.zeros(SMALL)
    other: Any = torch.zeros(SMALL)
    hooked.hook(other)
    assert hooked.slow_calls[0] is other
    call: Any = hooked.hook
    with pytest.raises(TypeError, match="takes the parameter"):
        call()
    with pytest.raises(TypeError, match="takes the parameter"):
        call(other, other)
    make: Any = _ringd.GradientHook
    with pytest.raises(TypeError):
        make()
    with pytest.raises(TypeError, match="a dict"):
        make(other, print, [], 1)
    with pytest.raises(TypeError, match="above 0"):
        make(other, print, {}, 0)


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_changes_of_a_submitted_gradient_are_seen(job: Job, elements: int) -> None:
    hooked = Hooked(job, elements)
    changes: list[Callable[[], Any]] = [
        lambda: gradient_of(hooked.parameter).add_(0),
        lambda: gradient_of(hooked.parameter).view(-1)[0:1].mul_(2),
        lambda: setattr(hooked.parameter, "grad", None),
        lambda: setattr(hooked.parameter, "grad", gradient_of(hooked.parameter).clone()),
        lambda: gradient_of(hooked.parameter).data.mul_(2),
        # Other memory with the same first bytes.
        lambda: setattr(gradient_of(hooked.parameter), "data", gradient_of(hooked.parameter).data.clone()),
    ]
    for change in changes:
        hooked.parameter.grad = None
        hooked.backward()
        hooked.expect_submitted()
        assert not hooked.hook.was_changed()
        job.context.wait(hooked.hook.operation)
        change()
        assert hooked.hook.was_changed()
        hooked.hook.take()
        hooked.pending.clear()
        hooked.hook.restart_count()
        assert gradient_of(hooked.parameter) is hooked.hook.arena


def test_hooks_of_several_threads(job: Job) -> None:
    """Each with its parameters."""
    workers = []
    hooked = [[Hooked(job, LARGE + 2 * group + number) for number in range(2)] for group in range(4)]

    def train(group: list[Hooked]) -> None:
        for step in range(20):
            for one in group:
                one.parameter.grad = None
                one.backward(step)
            for one in group:
                one.wait()
                assert gradient_of(one.parameter).unique().tolist() == [2 * step]

    failures: list[BaseException] = []

    def run(group: list[Hooked]) -> None:
        try:
            train(group)
        except BaseException as failure:
            failures.append(failure)

    for group in hooked:
        workers.append(threading.Thread(target=run, args=(group,)))
        workers[-1].start()
    for worker in workers:
        worker.join(60)
    assert not failures
    assert not any(one.slow_calls for group in hooked for one in group)


def test_nothing_is_left_of_a_hook_that_was_removed(job: Job) -> None:
    hooked = Hooked(job, LARGE)
    hooked.backward()
    hooked.wait()
    gone = [weakref.ref(hooked.parameter), weakref.ref(gradient_of(hooked.parameter))]
    hooked.handle.remove()
    del hooked
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_a_cycle_through_its_fields_is_collected() -> None:
    pending: dict[Any, None] = {}
    parameter = nn.Parameter(torch.zeros(1))
    hook = _ringd.GradientHook(parameter, print, pending, 1)
    pending[hook] = None
    gone = weakref.ref(parameter)
    del pending, parameter, hook
    gc.collect()
    assert gone() is None
