"""What ringd.torch keeps of a name's descriptions, against a context that keeps account."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ringd.context import Context
from ringd.errors import DeadlineExceededError, FailedPreconditionError, NotFoundError
from ringd.torch.job import Job
from ringd.types import CollectiveKind, DataType, Place, TensorSpec


class Account:
    """Hands out numbers; some are in flight."""

    def __init__(self) -> None:
        self.place = Place(0, 2, 0, 1, 0, 2, 2, 0, True, 1, "node", "0")
        self.live: dict[int, TensorSpec] = {}
        self.in_flight: set[int] = set()
        self.registers = 0
        self.unregisters = 0
        self.silent = False

    def register(self, specs: list[TensorSpec]) -> list[int]:
        self.registers += 1
        first = max(self.live, default=0) + 1
        self.live.update({first + i: spec for i, spec in enumerate(specs)})
        return list(range(first, first + len(specs)))

    def unregister(self, numbers: list[int]) -> None:
        self.unregisters += 1
        if any(number not in self.live for number in numbers):
            raise NotFoundError("no such registration")
        if self.in_flight.intersection(numbers):
            raise FailedPreconditionError("in use")
        for number in numbers:
            del self.live[number]
        if self.silent:
            raise DeadlineExceededError("ringd has not answered")


def make() -> tuple[Account, Job]:
    account = Account()
    return account, Job(cast(Context, cast(Any, account)))


def spec(name: str, extent: int, communicator: int = 0) -> TensorSpec:
    return TensorSpec(
        name, CollectiveKind.ALLREDUCE, DataType.FLOAT32, shape=(extent,), communicator=communicator
    )


def test_a_name_described_anew_for_ever_keeps_a_bounded_number() -> None:
    account, job = make()
    for extent in range(10_000):
        number = job.registration(spec("x", extent))
        assert account.live[number] == spec("x", extent)
        assert len(account.live) <= Job.KEPT
    assert account.unregisters <= 10_000 * 2 // Job.KEPT


def test_shapes_that_take_turns_cost_no_calls() -> None:
    account, job = make()
    for _ in range(100):
        for extent in range(Job.KEPT):
            job.register([spec("x", extent), spec("y", 1)])
    assert account.registers == Job.KEPT
    assert account.unregisters == 0


def test_what_is_used_stays_and_what_is_not_goes_first() -> None:
    account, job = make()
    for extent in range(100):
        kept = job.registration(spec("x", 0))
        job.registration(spec("x", extent))
        assert account.live[kept] == spec("x", 0)
    assert account.registers == 100


def test_one_in_flight_is_not_given_back_until_it_has_ended() -> None:
    account, job = make()
    number = job.registration(spec("x", 0))
    account.in_flight.add(number)
    for extent in range(1, 100):
        job.registration(spec("x", extent))
    assert account.live[number] == spec("x", 0)
    assert len(account.live) <= Job.KEPT + 1
    account.in_flight.clear()
    for extent in range(100, 200):
        job.registration(spec("x", extent))
    assert number not in account.live


def test_numbers_that_were_given_back_are_not_used_whatever_ringd_answers() -> None:
    account, job = make()
    account.silent = True
    for extent in range(Job.KEPT):
        job.registration(spec("x", extent))
    with pytest.raises(DeadlineExceededError):
        job.registration(spec("x", Job.KEPT))
    assert account.unregisters == 1
    for extent in range(Job.KEPT // 2):
        assert account.live[job.registration(spec("x", extent))] == spec("x", extent)


def test_a_list_in_which_one_name_has_many_descriptions_gets_all_of_them() -> None:
    account, job = make()
    specs = [spec("x", extent) for extent in range(40)]
    assert [account.live[number] for number in job.register(specs)] == specs


def test_a_name_on_many_communicators_keeps_its_descriptions_on_each() -> None:
    account, job = make()
    specs = [spec("x", 1, communicator) for communicator in range(3 * Job.KEPT)]
    for _ in range(10):
        for one in specs:
            job.registration(one)
    assert account.registers == len(specs)
    assert account.unregisters == 0


def test_a_communicator_is_forgotten_with_its_descriptions() -> None:
    account, job = make()
    for communicator in (0, 1, 2):
        job.register([spec("x", extent, communicator) for extent in (1, 2)])
    job.forget(1)
    for communicator in (0, 1, 2):
        job.register([spec("x", extent, communicator) for extent in (1, 2)])
    assert account.registers == 4


def test_names_that_do_not_return_are_given_back() -> None:
    account, job = make()
    often = job.registration(spec("often", 1))
    in_flight = job.registration(spec("in flight", 1))
    account.in_flight.add(in_flight)
    (gradient,) = job.register([spec("gradient", 1)], keep=True)
    for step in range(12 * Job.LOOK):
        number = job.registration(spec(f"step.{step}", 1))
        assert account.live[number].name == f"step.{step}"
        if step % 100 == 0:
            assert job.registration(spec("often", 1)) == often
    assert len(account.live) <= 3 * Job.LOOK
    assert account.unregisters <= 12 * 2 * 20
    assert in_flight in account.live
    assert job.register([spec("gradient", 1)]) == [gradient]
    again = job.registration(spec("step.0", 1))
    assert account.live[again].name == "step.0"
