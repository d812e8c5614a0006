"""The job that this process takes part in: ``init`` to ``shutdown``, and its place."""

from __future__ import annotations

import os
import threading
from typing import Any

from ringd.context import Context
from ringd.errors import FailedPreconditionError
from ringd.torch import horovod_variables
from ringd.torch.names import AutomaticNames
from ringd.types import TensorSpec


class Job:
    """A context, and what PyTorch's part remembers about it.

    A tensor that comes again with another shape or type is described anew. Each name keeps the
    ``KEPT`` descriptions used last, so that shapes which take turns cost no calls; of more, half
    are given back. Beyond ``MOST`` descriptions a name keeps only its last.

    Thread safety: any thread may call anything. A registration asked for twice is the same number,
    unless it has been given back meanwhile: then submitting it is a ``NotFoundError``.
    """

    KEPT = 16
    MOST = 32_768

    def __init__(self, context: Context) -> None:
        self.context = context
        self.place = context.place
        self.automatic_names = AutomaticNames()
        self._registrations: dict[TensorSpec, int] = {}
        # By name, those used last at the end. Changed under the lock.
        self._described: dict[str, dict[TensorSpec, None]] = {}
        self._lock = threading.Lock()
        # Keeps the tensors of operations alive whose handles or optimizers the program has dropped.
        self.in_flight: set[Any] = set()

    def registration(self, spec: TensorSpec) -> int:
        """Its number; asks ringd the first time."""
        (number,) = self.register([spec])
        return number

    def register(self, specs: list[TensorSpec]) -> list[int]:
        """The numbers of all, with at most one call to ringd."""
        try:
            numbers = [self._registrations[spec] for spec in specs]
        except KeyError:
            with self._lock:
                return self._describe(specs)
        if any(len(self._described[spec.name]) > 1 for spec in specs):
            with self._lock:
                self._used(specs)
        return numbers

    def _describe(self, specs: list[TensorSpec]) -> list[int]:
        unknown = [spec for spec in dict.fromkeys(specs) if spec not in self._registrations]
        if unknown:
            numbers = self.context.register(unknown)
            for spec in unknown:
                self._described.setdefault(spec.name, {})[spec] = None
            self._registrations.update(zip(unknown, numbers, strict=True))
        self._used(specs)
        numbers = [self._registrations[spec] for spec in specs]
        for name in dict.fromkeys(spec.name for spec in unknown):
            self._give_back(self._described[name], set(specs))
        return numbers

    def _used(self, specs: list[TensorSpec]) -> None:
        for spec in specs:
            described = self._described[spec.name]
            if spec in described:
                del described[spec]
                described[spec] = None

    def _give_back(self, described: dict[TensorSpec, None], needed: set[TensorSpec]) -> None:
        """Of one name, if it has too many: those that have not been used for longest and are not in
        flight."""
        kept = self.KEPT if len(self._registrations) <= self.MOST else 1
        if len(described) <= kept:
            return
        oldest = [spec for spec in list(described)[: len(described) - (kept + 1) // 2] if spec not in needed]
        if self._try_give_back(described, oldest):
            return
        # Some are in flight: they stay, until the next time.
        for spec in oldest:
            self._try_give_back(described, [spec])

    def _try_give_back(self, described: dict[TensorSpec, None], specs: list[TensorSpec]) -> bool:
        try:
            self.context.unregister([self._registrations[spec] for spec in specs])
        except FailedPreconditionError:
            return False
        for spec in specs:
            del self._registrations[spec]
            del described[spec]
        return True


_lock = threading.Lock()
_job: Job | None = None


def init(
    *,
    socket: str | None = None,
    job_id: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    local_rank: int | None = None,
    local_size: int | None = None,
    rendezvous: str | None = None,
    secret: str | None = None,
    start_timeout: float | None = None,
    operation_timeout: float | None = None,
    fusion: str | None = None,
    weight: int | None = None,
) -> None:
    """Takes this process's place in its job; blocks until all ranks have done so.

    Without arguments everything comes from the environment that the launcher has made
    (``ringctl run``, torchrun, horovodrun, Open MPI, MPICH, Slurm). Does nothing if this process
    has its place already. Arguments: as ``ringd.Context``.

    Raises ``ringd.RingdError``: no ringd at the socket, a rank that does not come, a place that is
    taken.
    """
    given = {
        "socket": socket,
        "job_id": job_id,
        "rank": rank,
        "size": size,
        "local_rank": local_rank,
        "local_size": local_size,
        "rendezvous": rendezvous,
        "secret": secret,
        "start_timeout": start_timeout,
        "operation_timeout": operation_timeout,
        "fusion": fusion,
        "weight": weight,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    global _job
    with _lock:
        if _job is not None:
            return
        _job = Job(Context(**horovod_variables.options(os.environ, options), **options))
    if _job.place.rank == 0:
        horovod_variables.tell_of_ignored(os.environ)


def shutdown() -> None:
    """Leaves the job. Operations in flight end with ``CancelledError``; ``init`` may be called
    again."""
    global _job
    with _lock:
        job, _job = _job, None
    if job is not None:
        job.context.close()
        job.in_flight.clear()


def is_initialized() -> bool:
    """Whether this process has a place: between ``init`` and ``shutdown``."""
    return _job is not None


def current() -> Job:
    """This process's job; ``FailedPreconditionError`` if it has none."""
    job = _job
    if job is None:
        raise FailedPreconditionError("ringd.torch has not been initialized; call ringd.torch.init() first")
    return job


def is_current(job: Job | None) -> bool:
    """Whether `job` is the one that this process takes part in."""
    return job is not None and job is _job


def rank() -> int:
    """This process's number in the job, 0 to ``size() - 1``."""
    return current().place.rank


def size() -> int:
    """How many processes the job has."""
    return current().place.size


def local_rank() -> int:
    """This process's number among those on its node."""
    return current().place.local_rank


def local_size() -> int:
    """How many processes of the job are on this node."""
    return current().place.local_size


def cross_rank() -> int:
    """This node's number among the nodes that have a process with this local rank."""
    return current().place.cross_rank


def cross_size() -> int:
    """How many nodes have a process with this local rank."""
    return current().place.cross_size


def is_homogeneous() -> bool:
    """Whether every node has equally many processes."""
    return current().place.homogeneous


def _in_forked_child() -> None:
    """The place is the parent's; the child may take one of its own."""
    global _job, _lock
    _job = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)
