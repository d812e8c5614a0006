"""The job that this process takes part in: ``init`` to ``shutdown``, and its place."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ringd.context import Context
from ringd.errors import FailedPreconditionError, InvalidArgumentError
from ringd.torch import freed_memory, horovod_variables
from ringd.torch.device_operations import DeviceOperations
from ringd.torch.gradient_names import GradientNames, operation_name
from ringd.torch.names import AutomaticNames
from ringd.types import Place, TensorSpec

if TYPE_CHECKING:
    from ringd.torch.process_set import ProcessSet


class Communicator:
    """Among whom operations run, as long as a job lasts or a process set is registered with it.

    Thread safety: `number` and `size` are constant; for the rest see ``AutomaticNames`` and
        ``GradientNames``.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        # Unnamed operations are counted by those who take part in them.
        self.automatic_names = AutomaticNames()
        self.gradient_names = GradientNames()


class Job:
    """A context, and what PyTorch's part remembers about it.

    A tensor that comes again with another shape or type is described anew. Each name keeps, on each
    communicator, the ``KEPT`` descriptions used last, so that shapes which take turns cost no
    calls; of more, half are given back. Beyond ``MOST`` descriptions a name keeps only its last.
    Names that do not return, as those that hold a step's number, are given back, too: for every
    ``LOOK`` descriptions that come on top, all that nobody has asked for meanwhile. Those of
    gradients stay as long as their parameters.

    Thread safety: any thread may call anything. A registration asked for twice is the same number,
    unless it has been given back meanwhile: then submitting it is a ``NotFoundError``.
    """

    KEPT = 16
    MOST = 32_768
    LOOK = 8_192

    def __init__(self, context: Context) -> None:
        self.context = context
        self.place = context.place
        self.world = Communicator(0, context.place.size)
        self.device = DeviceOperations(context)
        # By number. Changed, as the next number is, under their lock, which is held while the ranks
        # agree.
        self.process_sets: dict[int, ProcessSet] = {}
        self.next_process_set = 1
        # A call that changes them was interrupted while the ranks agreed.
        self.process_sets_interrupted = False
        self.process_sets_lock = threading.Lock()
        self._registrations: dict[TensorSpec, int] = {}
        # By communicator and name, those used last at the end. Changed under the lock.
        self._described: dict[tuple[int, str], dict[TensorSpec, None]] = {}
        # Registrations that somebody has asked for since the last look, and when to look next.
        self._asked: set[int] = set()
        # Of gradients, whose hooks do not ask.
        self._kept: set[tuple[int, str]] = set()
        self._look_at = 2 * self.LOOK
        self._lock = threading.Lock()
        # Keeps the tensors of operations alive whose handles or optimizers the program has dropped.
        self.in_flight: set[Any] = set()
        # Of these, the gradients whose optimizers have gone: the next optimizer looks after them.
        self.left: list[Any] = []
        # And handles that nobody synchronizes: a call was refused half-way, or interrupted.
        self.abandoned: list[Any] = []

    def registration(self, spec: TensorSpec) -> int:
        """Its number; asks ringd the first time."""
        (number,) = self.register([spec])
        return number

    def register(self, specs: list[TensorSpec], *, keep: bool = False) -> list[int]:
        """The numbers of all, with at most one call to ringd. `keep`: they are used again and again
        without being asked for."""
        if keep:
            with self._lock:
                self._kept.update(map(_key, specs))
        try:
            # Without the lock, under which another thread may wait for other ranks. What is still
            # there once it has been asked for is not given back by _give_back_unasked.
            self._asked.update([self._registrations[spec] for spec in specs])
            numbers = [self._registrations[spec] for spec in specs]
        except KeyError:
            with self._lock:
                return self._describe(specs)
        if any(len(self._described.get(_key(spec), ())) > 1 for spec in specs):
            with self._lock:
                self._used(specs)
        return numbers

    def _describe(self, specs: list[TensorSpec]) -> list[int]:
        unknown = [spec for spec in dict.fromkeys(specs) if spec not in self._registrations]
        if unknown:
            numbers = self.context.register(unknown)
            for spec in unknown:
                self._described.setdefault(_key(spec), {})[spec] = None
            self._registrations.update(zip(unknown, numbers, strict=True))
        self._used(specs)
        numbers = [self._registrations[spec] for spec in specs]
        self._asked.update(numbers)
        for key in dict.fromkeys(_key(spec) for spec in unknown):
            self._give_back(self._described[key], set(specs))
        if len(self._registrations) > self._look_at:
            self._give_back_unasked()
        return numbers

    def _used(self, specs: list[TensorSpec]) -> None:
        for spec in specs:
            described = self._described.get(_key(spec), {})
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
        self._give_back_idle(oldest)

    def _give_back_unasked(self) -> None:
        unasked = [
            spec
            for spec, number in self._registrations.items()
            if number not in self._asked and _key(spec) not in self._kept
        ]
        self._give_back_idle(unasked, unless_asked=True)
        self._asked.clear()
        self._look_at = max(len(self._registrations), self.LOOK) + self.LOOK

    def _give_back_idle(self, specs: list[TensorSpec], *, unless_asked: bool = False) -> None:
        """All but those in flight, and with `unless_asked` those asked for meanwhile."""
        # First out of what `register` finds, then a look at what it has noted.
        leaving = {spec: self._registrations.pop(spec) for spec in specs}
        if unless_asked:
            for spec in [spec for spec, number in leaving.items() if number in self._asked]:
                self._registrations[spec] = leaving.pop(spec)
        try:
            self.context.unregister(list(leaving.values()))
        except FailedPreconditionError:
            self._registrations.update(leaving)
            rest = list(leaving)
            leaving = {}
            half = len(rest) // 2
            if half > 0:
                self._give_back_idle(rest[:half], unless_asked=unless_asked)
                self._give_back_idle(rest[half:], unless_asked=unless_asked)
            return
        finally:
            # Whatever else has gone wrong, libringd knows them no more; one that it does know would
            # get its number again.
            self._forget(leaving)

    def _forget(self, leaving: dict[TensorSpec, int]) -> None:
        """What has been taken out of the registrations."""
        self._asked.difference_update(leaving.values())
        for spec in leaving:
            key = _key(spec)
            del self._described[key][spec]
            if not self._described[key]:
                del self._described[key]

    def give_back(self, communicator: Communicator) -> None:
        """What was described for gradients whose parameters have gone, unless it is in flight."""
        with self._lock:
            for name in communicator.gradient_names.gone():
                key = communicator.number, operation_name(name)
                self._kept.discard(key)
                self._give_back_idle(list(self._described.get(key, {})))

    def has_in_flight(self, communicator: int) -> bool:
        """Whether an operation of this communicator has not been waited for."""
        return any(entry.communicator == communicator for entry in list(self.in_flight))

    def forget(self, communicator: int) -> None:
        """Before it is destroyed, and its registrations with it."""
        with self._lock:
            self._kept = {key for key in self._kept if key[0] != communicator}
            for key in [key for key in self._described if key[0] == communicator]:
                for spec in self._described.pop(key):
                    self._asked.discard(self._registrations.pop(spec))


def _key(spec: TensorSpec) -> tuple[int, str]:
    return spec.communicator, spec.name


# Held while `_job` changes; not while a context is opened, which may take long, and in which a
# signal's handler may call shutdown().
_lock = threading.RLock()
_opening = threading.RLock()  # one context at a time
_job: Job | None = None
_parents_place: Place | None = None  # when it forked this process


def init(
    comm: None = None,
    process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None = None,
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
    has its place already. glibc's malloc keeps freed memory from then on, up to 1 GiB, unless the
    environment has settings for it or ``RINGD_KEEP_FREED_MEMORY=0``. The first CUDA tensor opens
    its GPU, with ``RINGD_SLAB`` (512MiB) of memory there. Arguments: as ``ringd.Context``, and

    comm: Horovod's argument for some ranks, or an MPI communicator; None. Default: None.
    process_sets: these are added, as by ``add_process_set``, in this order; all ranks must give the
        same. Default: none. ``"dynamic"`` is the same here: sets can be added at any time.

    Raises ``ringd.RingdError``: no ringd at the socket, a rank that does not come, a place that is
    taken, and what ``add_process_set`` raises; without a place then.
    """
    from ringd.torch.process_set import add_process_set, initial_sets, refuse_new

    if comm is not None:
        raise InvalidArgumentError(
            "init(comm=...) is Horovod's; ringd knows its ranks from the launcher's environment and uses "
            "no MPI. For operations among some of them: hvd.init(process_sets=[hvd.ProcessSet([0, 1])])"
        )
    wanted = initial_sets(process_sets)
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
    options = {name: value for name, value in given.items() if value is not None}
    if not _enter(options):
        refuse_new(wanted)
        return
    freed_memory.keep(os.environ)
    if current().place.rank == 0:
        horovod_variables.tell_of_ignored(os.environ)
    try:
        for process_set in wanted:
            add_process_set(process_set)
    except BaseException:
        shutdown()
        raise


def _enter(options: dict[str, Any]) -> bool:
    """False if this process has a place already."""
    global _job
    with _opening:
        if _job is not None:
            return False
        job = Job(Context(**horovod_variables.options(os.environ, options), **options))
        with _lock:
            _job = job
    return True


def shutdown() -> None:
    """Leaves the job; does nothing while ``init`` has not returned. Operations in flight end with
    ``CancelledError``, but results for which streams of a GPU wait are waited for; ``init`` may be
    called again."""
    global _job
    with _lock:
        job, _job = _job, None
    if job is None:
        return
    try:
        job.device.finish()
    finally:
        job.context.close()
        job.in_flight.clear()
        job.left.clear()
        job.abandoned.clear()


def is_initialized() -> bool:
    """Whether this process has a place: between ``init`` and ``shutdown``."""
    return _job is not None


def current() -> Job:
    """This process's job; ``FailedPreconditionError`` if it has none."""
    job = _job
    if job is None and _parents_place is not None:
        raise FailedPreconditionError(
            "this process was forked from one that had initialized ringd.torch: it has no place in the job "
            "and can take none; start it by spawning (exec), or fork before the parent calls init()"
        )
    if job is None:
        raise FailedPreconditionError("ringd.torch has not been initialized; call ringd.torch.init() first")
    return job


def is_current(job: Job | None) -> bool:
    """Whether `job` is the one that this process takes part in."""
    return job is not None and job is _job


def known_place() -> Place | None:
    """This process's; in a forked child, such as a DataLoader's worker, that of its parent. None
    without a job."""
    return _parents_place if _job is None else _job.place


def place() -> Place:
    """``known_place()``; ``FailedPreconditionError`` without a job."""
    return known_place() or current().place


def rank() -> int:
    """This process's number in the job, 0 to ``size() - 1``."""
    return place().rank


def size() -> int:
    """How many processes the job has."""
    return place().size


def local_rank() -> int:
    """This process's number among those on its node."""
    return place().local_rank


def local_size() -> int:
    """How many processes of the job are on this node."""
    return place().local_size


def cross_rank() -> int:
    """This node's number among the nodes that have a process with this local rank."""
    return place().cross_rank


def cross_size() -> int:
    """How many nodes have a process with this local rank."""
    return place().cross_size


def is_homogeneous() -> bool:
    """Whether every node has equally many processes."""
    return place().homogeneous


def _in_forked_child() -> None:
    """The place is the parent's, and the child can take none while it has one: see ringd.h. What it
    is can still be asked."""
    global _job, _lock, _opening, _parents_place
    if _job is not None:
        _parents_place = _job.place
    _job = None
    _lock = threading.RLock()
    _opening = threading.RLock()


os.register_at_fork(after_in_child=_in_forked_child)
