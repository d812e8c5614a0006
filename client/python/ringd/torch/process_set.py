"""Process sets: some of a job's ranks, among which operations run."""

from __future__ import annotations

import contextlib
import itertools
import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ringd.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    RingdError,
)
from ringd.torch import gradients_in_flight
from ringd.torch.digest import digest_of
from ringd.torch.handle import finished, take_out_abandoned
from ringd.torch.job import Communicator, Job, current, is_current, is_initialized, known_place, place
from ringd.torch.operations import allreduce_spec, start
from ringd.types import ReduceOp

# More ranks than these are not spelt out in messages.
_MOST_NAMED = 16


def _words(ranks: Sequence[int]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:_MOST_NAMED])
    more = f", ... ({len(ranks)} in all)" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"


class _Registered(NamedTuple):
    """What a process set is in one job."""

    job: weakref.ref[Job]
    number: int
    #: None on ranks that are no members.
    communicator: Communicator | None


class ProcessSet:
    """Some ranks of the job, for ``process_set=``.

    ranks: numbers of ranks in the job, each once, in any order; the set has them in ascending
        order.

    It can be used between ``add_process_set``, or ``init(process_sets=[...])``, and
    ``remove_process_set`` or ``shutdown``. Afterwards it may be added again.

    Raises ``InvalidArgumentError`` if there are no ranks, or if one is negative, no number, or
    there twice.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = _checked(ranks)
        self._registered: _Registered | None = None

    @property
    def ranks(self) -> list[int]:
        """The numbers that its members have in the job, in ascending order."""
        return list(self._ranks)

    @property
    def process_set_id(self) -> int | None:
        """Its number, the same on all ranks; 0 is that of all ranks. None if it can't be used
        now."""
        registered = self._registered
        return registered.number if registered is not None and is_current(registered.job()) else None

    def size(self) -> int:
        """How many ranks it has."""
        return len(self._ranks)

    def rank(self) -> int:
        """This process's place among its ranks, 0 to ``size() - 1``.

        Raises ``InvalidArgumentError`` if this process is none of them.
        """
        own = place().rank
        if own not in self._ranks:
            raise InvalidArgumentError(_no_member(self, own))
        return self._ranks.index(own)

    def included(self) -> bool:
        """Whether this process is one of its ranks."""
        return place().rank in self._ranks

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessSet:
        # A copy of a module goes on to use the set that the module uses.
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _set_of, (self._ranks,)


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job that there is."""

    def __init__(self) -> None:
        self._registered = None

    @property
    def _ranks(self) -> tuple[int, ...]:  # type: ignore[override]
        known = known_place()
        return () if known is None else tuple(range(known.size))

    @property
    def process_set_id(self) -> int | None:
        return 0

    def size(self) -> int:
        return place().size

    def rank(self) -> int:
        return place().rank

    def __reduce__(self) -> str | tuple[Any, ...]:
        return "global_process_set"


#: All ranks; always there.
global_process_set: ProcessSet = _GlobalProcessSet()


def _checked(ranks: Iterable[int]) -> tuple[int, ...]:
    try:
        numbers = sorted(operator.index(rank) for rank in ranks)
    except TypeError:
        raise InvalidArgumentError(
            f"a process set is made of a list of ranks, such as [0, 2], not of {ranks!r}"
        ) from None
    if not numbers:
        raise InvalidArgumentError("a process set must have a rank; this list has none")
    if numbers[0] < 0:
        raise InvalidArgumentError(f"a process set of {_words(numbers)}: ranks count from 0")
    for rank, next_rank in itertools.pairwise(numbers):
        if rank == next_rank:
            raise InvalidArgumentError(f"a process set of {_words(numbers)}: rank {rank} is there twice")
    return tuple(numbers)


def _set_of(ranks: Iterable[int]) -> ProcessSet:
    """From a pickle, which another process may have written: this job's set of these ranks."""
    wanted = ProcessSet(ranks)
    if is_initialized():
        for known in current().process_sets.values():
            if known.ranks == wanted.ranks:
                return known
    return wanted


def _described(process_set: ProcessSet) -> str:
    number = process_set.process_set_id
    return f"process set {number} ({_words(process_set.ranks)})"


def _no_member(process_set: ProcessSet, rank: int) -> str:
    return f"rank {rank} is not in the process set of {_words(process_set.ranks)}"


def _registered_in(job: Job, process_set: ProcessSet) -> _Registered:
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgumentError(
            "process_set must be a ProcessSet, such as hvd.global_process_set or what "
            f"hvd.add_process_set returns, not {process_set!r}"
        )
    registered = process_set._registered
    if registered is None or registered.job() is not job:
        raise FailedPreconditionError(
            f"the process set of {_words(process_set.ranks)} is not registered: give it to "
            "hvd.init(process_sets=[...]), or call hvd.add_process_set, on all ranks"
        )
    return registered


def communicator_if_member(process_set: ProcessSet, job: Job) -> Communicator | None:
    """What its operations need; None if this rank is none of its ranks.

    ``FailedPreconditionError``: it is not registered with this job.
    """
    if process_set is global_process_set:
        return job.world
    return _registered_in(job, process_set).communicator


def communicator_of(process_set: ProcessSet, job: Job) -> Communicator:
    """As ``communicator_if_member``; ``InvalidArgumentError`` on a rank that is no member."""
    communicator = communicator_if_member(process_set, job)
    if communicator is None:
        raise InvalidArgumentError(
            f"{_no_member(process_set, job.place.rank)}, so it can't take part in an operation of that set"
        )
    return communicator


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Makes a process set usable, and returns it.

    All ranks of the job must call it, members or not, as all other calls of it and of
    ``remove_process_set`` in the same order; it blocks until they have. The set then has the same
    ``process_set_id`` on all.

    process_set: a ``ProcessSet``, or a list of ranks, of which one is made.

    Raises ``InvalidArgumentError`` if a rank is none of the job's, or if the ranks of the job do
    not ask for the same; ``AlreadyExistsError`` if there is a set of these ranks, as the global one
    is for all ranks; ``FailedPreconditionError`` if an earlier such call was interrupted.
    """
    job = current()
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    with job.process_sets_lock, _in_step(job):
        _refuse_impossible(job, added)
        number = job.next_process_set
        _agree(job, f"adds process set {number} of {list(added.ranks)}", f"a set of {_words(added.ranks)}")
        job.next_process_set += 1
        communicator, failure = None, None
        if added.included():
            try:
                communicator = _create(job, number, added)
            except RingdError as error:
                failure = error
        failed_ranks = _ranks_that(job, failure is not None)
        if failed_ranks:
            if communicator is not None:
                job.context.destroy_communicator(communicator.number)
            raise failure or FailedPreconditionError(
                f"{_words(failed_ranks)} could not create the process set of {_words(added.ranks)}"
            )
        added._registered = _Registered(weakref.ref(job), number, communicator)
        job.process_sets[number] = added
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set: it can't be used any more. Returns True.

    All ranks of the job must call it, members or not, as all other calls of it and of
    ``add_process_set`` in the same order; it blocks until they have.

    process_set: what ``add_process_set`` has returned, or ``init`` was given.

    Raises ``FailedPreconditionError`` on all ranks, and removes nothing, if an operation on the set
    has not been synchronized on one of them; also if the set is not registered, or if an earlier
    such call was interrupted.
    ``InvalidArgumentError`` for the global set, or if the ranks do not ask for the same.
    """
    job = current()
    if process_set is global_process_set:
        raise InvalidArgumentError("the global process set can't be removed; it is there as long as the job")
    with job.process_sets_lock, _in_step(job):
        registered = _registered_in(job, process_set)
        words = _described(process_set)
        _agree(job, f"removes process set {registered.number}", f"the removal of {words}")
        communicator = registered.communicator
        if communicator is not None:
            job.device.finish(communicator.number)
            gradients_in_flight.await_left(job, communicator.number)
        take_out_abandoned(job)
        busy = communicator is not None and job.has_in_flight(communicator.number)
        busy_ranks = _ranks_that(job, busy)
        if busy_ranks:
            raise FailedPreconditionError(
                f"{words} can't be removed: on {_words(busy_ranks)} operations of it have not been "
                "synchronized"
            )
        process_set._registered = None
        del job.process_sets[registered.number]
        if communicator is not None:
            job.forget(communicator.number)
            job.context.destroy_communicator(communicator.number)
    return True


def initial_sets(process_sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    """What ``init`` was given, as a list."""
    if process_sets is None or process_sets == "dynamic":
        return []
    if isinstance(process_sets, str):
        raise InvalidArgumentError(
            f"process_sets must be a list of ProcessSet, or 'dynamic', not '{process_sets}'"
        )
    wanted = list(process_sets)
    for process_set in wanted:
        if not isinstance(process_set, ProcessSet):
            raise InvalidArgumentError(
                f"process_sets must be a list of ProcessSet, such as [hvd.ProcessSet([0, 2])]; "
                f"{process_set!r} is none"
            )
    return wanted


def refuse_new(wanted: Iterable[ProcessSet]) -> None:
    """For ``init`` in a process that has its place: ``FailedPreconditionError`` if it names sets
    that are not there."""
    for process_set in wanted:
        if process_set.process_set_id is None:
            raise FailedPreconditionError(
                f"init() has been called before, without the process set of {_words(process_set.ranks)}; "
                "call hvd.add_process_set on all ranks"
            )


def _refuse_impossible(job: Job, process_set: ProcessSet) -> None:
    ranks = process_set.ranks
    if ranks[-1] >= job.place.size:
        raise InvalidArgumentError(
            f"a process set of {_words(ranks)}: rank {ranks[-1]} is none of the job's {job.place.size}"
        )
    if len(ranks) == job.place.size:
        raise AlreadyExistsError(
            "the global process set has all ranks already; use hvd.global_process_set for these"
        )
    for known in job.process_sets.values():
        if known.ranks == ranks:
            raise AlreadyExistsError(f"{_described(known)} has these ranks already")


def _create(job: Job, number: int, process_set: ProcessSet) -> Communicator:
    made = job.context.create_communicator(f"process_set.{number}", process_set.ranks)
    return Communicator(made, process_set.size())


#: As which a rank that has not called them is told to be waited for. One for both: ranks that
#: call one of them each hear so.
_CALL = "add_process_set or remove_process_set"


@contextlib.contextmanager
def _in_step(job: Job) -> Iterator[None]:
    """Of a call by which all ranks agree, in several steps. An interrupt leaves this rank behind,
    and a further call would be taken for a step of the first."""
    if job.process_sets_interrupted:
        raise FailedPreconditionError(
            f"{_CALL} was interrupted on this rank while the ranks agreed: no process set can be added "
            "or removed any more; call hvd.shutdown() and hvd.init() on all ranks"
        )
    try:
        yield
    except RingdError:
        raise
    except BaseException:
        job.process_sets_interrupted = True
        raise


def _gathered(job: Job, name: str, own: int) -> list[int]:
    """Each rank's number, by rank; blocks until all have called it."""
    numbers = torch.zeros(job.place.size, dtype=torch.int64, device="cpu")
    numbers[job.place.rank] = own
    spec = allreduce_spec(numbers, name, ReduceOp.SUM, 1.0, 1.0)
    return finished(start(job, numbers, [(spec, numbers, numbers)], awaited=True)).tolist()


def _agree(job: Job, request: str, words: str) -> None:
    """``InvalidArgumentError``, on all ranks, if one of them does not ask for `request`."""
    requests = _gathered(job, _CALL, digest_of(request))
    own = requests[job.place.rank]
    others = [rank for rank, asked in enumerate(requests) if asked != own]
    if others:
        raise InvalidArgumentError(
            f"rank {job.place.rank} asks for {words}, but {_words(others)} "
            f"ask{'s' if len(others) == 1 else ''} for something else. All ranks must call "
            "add_process_set and remove_process_set in the same order, for the same ranks"
        )


def _ranks_that(job: Job, own: bool) -> list[int]:
    """For which ranks it is so."""
    return [rank for rank, so in enumerate(_gathered(job, f"outcome of {_CALL}", int(own))) if so]
