"""One rank's place in one job: the C interface as a Python object."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from ringd import _ringd, exits
from ringd.types import Place


class Context:
    """Attaches to the node's ringd and takes a place in a job; all ranks of the job must do so.

    What is not given comes from the environment: ``RINGD_SOCKET``, ``RINGD_JOB_ID``, the launcher's variables and so
    on, as ``ringd_options`` in ``ringd.h`` lists. Without launcher, and without a ringd at the default socket, the process
    is one rank alone. Blocks until all ranks have joined. A process may have several
    contexts, one after another or at once.

    Tensors are addresses here: ``submit(registration, source, destination)`` gives an operation, ``wait`` its
    end, ``wait_all`` that of a list of them, in one call. The memory must stay as it is until then. ``submit_awaited``
    is ``submit`` for what is waited for next: over several nodes small all-reduces and barriers are faster so.
    ``ringd.torch`` does all this for PyTorch.

    Thread safety: any thread may call anything.
    """

    def __init__(
        self,
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
        places = (rank, size, local_rank, local_size)
        given = [place for place in places if place is not None]
        if given and len(given) != len(places):
            raise TypeError("give all of rank, size, local_rank and local_size, or none")
        rank, size, local_rank, local_size = given or (-1, 0, 0, 0)
        raw = _ringd.open(
            socket,
            job_id,
            rank,
            size,
            local_rank,
            local_size,
            rendezvous,
            secret,
            _milliseconds(start_timeout, "start_timeout"),
            _milliseconds(operation_timeout, "operation_timeout"),
            fusion,
            _weight(weight),
        )
        self._raw = raw
        #: Where this rank is; constant.
        self.place = Place(*raw.place())
        # The extension's own methods, without a Python call in between.
        self.register = raw.register
        self.unregister = raw.unregister
        self.submit = raw.submit
        self.try_submit = raw.try_submit
        self.submit_awaited = raw.submit_awaited
        self.test = raw.test
        self.wait = raw.wait
        self.wait_all = raw.wait_all
        self.arena_alloc = raw.arena_alloc
        self.arena_free = raw.arena_free
        self.arena_contains = raw.arena_contains
        exits.watch(self)

    def close(self) -> None:
        """Leaves the job. Calls under way in other threads end with ``CancelledError``.

        Arena memory stays readable as long as this object, or a tensor in it, lives.
        """
        self._raw.leave()

    def abandon(self) -> None:
        """As ``close``, for a rank that has failed: the others are told at once, as if this process had died."""
        self._raw.abandon()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        if error_type is None:
            self.close()
        else:
            self.abandon()
        return False


def _weight(weight: int | None) -> int:
    if weight is None:
        return 0
    if not 1 <= weight <= 100:
        raise ValueError(f"weight must be a whole number, 1 to 100, not {weight}")
    return weight


def _milliseconds(seconds: float | None, name: str) -> int:
    """0 stands for the default, so what is not 0 must not become it."""
    if seconds is None:
        return 0
    if not 0 < seconds <= 4_000_000:
        raise ValueError(f"{name} must be a number of seconds above 0, not {seconds}")
    return max(1, round(seconds * 1000))
