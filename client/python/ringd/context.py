"""One rank's place in one job: the C interface as a Python object."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Literal

from ringd import _ringd, cuda_array, exits
from ringd.cuda_array import DeviceOperation
from ringd.types import CollectiveKind, CommunicatorPlace, DataType, Place, ReduceOp


class Context:
    """A place in a job. Making one attaches to the node's ringd and blocks until all ranks of the
    job have joined.

    A process may have several contexts, one after another or at once. As a context manager it is
    closed at the end of the block, also by ``sys.exit``, and abandoned if that ends with another
    exception. Without launcher, and without a ringd at the default socket, the process is one rank
    alone.

    Arguments, all by name; what is not given comes from the environment:

    socket: ringd's socket; ``RINGD_SOCKET``, else ``/run/ringd/ringd.sock``.
    job_id: tells jobs apart; ``RINGD_JOB_ID``, else the launcher's id, else
        ``default`` and a warning.
    rank, size, local_rank, local_size: this process's place, all four or none; the launcher's
        variables, else one rank alone.
    rendezvous: host:port of the ringd on rank 0's node; ``RINGD_RENDEZVOUS``, else ``MASTER_ADDR``
        or Slurm's first node.
    secret: equal on all ranks; ``RINGD_JOB_SECRET``, else none.
    start_timeout: seconds until all ranks must have joined; ``RINGD_START_TIMEOUT``, else ringd's
        setting.
    operation_timeout: seconds that an operation may wait for a rank; ``RINGD_OPERATION_TIMEOUT``,
        else ringd's setting, by default none.
    fusion: ``learned``, ``pinned``, ``off`` or a size such as ``64MiB``; ``RINGD_FUSION``, else
        ringd's setting.
    weight: 1 to 100, the job's share of lines that other jobs want too; ``RINGD_WEIGHT``, else 1.

    Methods of every context, beside those below. Tensors are addresses; the memory must stay as it
    is until the operation has been waited for. Timeouts are milliseconds, by default without end:

    register(tensors): a number for each TensorSpec; ``unregister(numbers)`` gives them back.
    submit(number, source, destination): begins an operation and returns it. ``try_submit`` raises
        ``ResourceExhaustedError`` where ``submit`` waits for room.
    submit_awaited(number, source, destination): as ``submit``, faster for what is waited for next.
    wait(operation, timeout_ms), wait_all(operations, timeout_ms): until the end; raise what went
        wrong. ``wait_all`` takes a list, and changes it: those that have ended well become
        2**64 - 1, those that have failed 0. After a timeout or an interrupt give it the same list.
    test(operation): whether ``wait`` would return at once.
    destroy_communicator(number): this rank needs it no more; ``FailedPreconditionError`` while
        something is in flight there.
    arena_alloc(bytes), arena_free(address), arena_contains(address, bytes): memory shared with
        ringd.

    device_open(device, slab_bytes): opens the GPU of that ordinal, and has ringd make memory there.
        ``RINGD_CUDA_LIBRARY`` names the driver; default ``libcuda.so.1``.
    device_alloc(bytes), device_free(address): that memory, for tensors that shall not be copied.
    submit_on_stream(number, source, destination, stream): as ``submit``, for tensors anywhere in
        the GPU's memory whose ``TensorSpec.memory`` is ``Memory.DEVICE``, when ``stream`` (an
        address: what PyTorch calls ``cuda_stream``) has done what was put on it before.
        ``ResourceExhaustedError``: more is in flight than ``slab_bytes``; wait for some.
    stream_wait(operation, stream): what is put on ``stream`` from now on has the result. The
        operation is still to be waited for.

    Thread safety: any thread may call anything.
    """

    #: Where this rank is; constant.
    place: Place

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
        #: The extension's own object, for what else is written in C.
        self.raw = raw
        self.place = Place(*raw.place())
        # The extension's own methods, without a Python call in between.
        self.register = raw.register
        self.unregister = raw.unregister
        self.destroy_communicator = raw.destroy_communicator
        self.submit = raw.submit
        self.try_submit = raw.try_submit
        self.submit_awaited = raw.submit_awaited
        self.test = raw.test
        self.wait = raw.wait
        self.wait_all = raw.wait_all
        self.arena_alloc = raw.arena_alloc
        self.arena_free = raw.arena_free
        self.arena_contains = raw.arena_contains
        self.device_open = raw.device_open
        self.device_alloc = raw.device_alloc
        self.device_free = raw.device_free
        self.submit_on_stream = raw.submit_on_stream
        self.stream_wait = raw.stream_wait
        exits.watch(self)

    def create_communicator(
        self,
        name: str,
        ranks: Iterable[int],
        *,
        timeout: float | None = None,
        matching: Literal["name", "order"] = "name",
    ) -> int:
        """Makes a communicator of some ranks, this one among them, and returns its number, which is
        equal on all.

        Blocks until all of them have called it with this name and these ranks, in this order; other
        ranks need not know. Tensors whose ``TensorSpec.communicator`` is the number are combined
        among these ranks. Communicators may overlap, and none holds up another. ``root_rank`` stays
        the job's.

        name: 1 to 128 bytes of UTF-8. timeout: seconds for the others to call; default: as
            ``start_timeout``.
        matching: which operations of its ranks belong together: those on tensors of one name, or
            the n-th of each rank, which are begun by ``submit_in_order``. The same on all.

        Raises ``InvalidArgumentError`` if the ranks disagree, ``DeadlineExceededError`` with the
        ranks that have not called, ``AlreadyExistsError`` if one of them has a communicator of this
        name.
        """
        if matching not in ("name", "order"):
            raise ValueError(f'matching must be "name" or "order", not {matching!r}')
        patience = _milliseconds(timeout, "timeout")
        return self.raw.create_communicator(name, list(ranks), patience, matching == "order")

    def submit_in_order(
        self,
        communicator: int,
        kind: CollectiveKind,
        source: int = 0,
        destination: int = 0,
        count: int = 0,
        *,
        data_type: DataType = DataType.FLOAT32,
        op: ReduceOp = ReduceOp.SUM,
        prescale: float = 1.0,
        postscale: float = 1.0,
        root_rank: int = 0,
    ) -> int:
        """Begins the next operation of a communicator that matches by order, and returns it.

        The n-th operation of each of its ranks is one with the n-th of the others: no name, no
        ``register``. Where the n-th differ in anything, the waits for it raise
        ``InvalidArgumentError`` on all ranks, with what they submitted; later ones go on. One
        thread at a time per communicator, or the order is open. Blocks only for want of room.

        source, destination: addresses in host memory of `count` elements; 0 for a barrier.
        op, prescale, postscale: of an all-reduce, as ``TensorSpec``.
        root_rank: of the job, for a broadcast.
        """
        return self.raw.submit_in_order(
            communicator,
            kind,
            data_type,
            op,
            root_rank,
            count,
            source,
            destination,
            prescale,
            postscale,
        )

    def communicator_place(self, communicator: int) -> CommunicatorPlace:
        """Where this rank is in it; 0 is the communicator of all ranks."""
        return CommunicatorPlace(*self.raw.communicator_place(communicator))

    def device_all_reduce(
        self,
        array: object,
        name: str,
        *,
        out: object | None = None,
        op: ReduceOp = ReduceOp.SUM,
        prescale: float = 1.0,
        postscale: float = 1.0,
        communicator: int = 0,
        data_type: DataType | None = None,
        stream: int | None = None,
    ) -> DeviceOperation:
        """Begins to reduce an array on the GPU that ``device_open`` has opened, and returns an
        operation: ``stream_wait`` lets a stream wait for the result, ``wait`` the host.

        array: an object with ``__cuda_array_interface__``, as CuPy's, Numba's and PyTorch's are,
            or one that exports itself by DLPack (``__dlpack__``), as JAX's; contiguous. It must not
            be changed before the operation has ended.
        out: gets the result; of the same shape and type. Default: `array` does.
        op, prescale, postscale, communicator: as ``TensorSpec``.
        data_type: of elements for which the interface has no word: bfloat16, float8.
        stream: the address of the one on which `array` and `out` are ready; what exports itself by
            DLPack is made ready on it. Default: what their interfaces say; where they say none,
            CUDA's default stream.

        Raises ``InvalidArgumentError`` for what is no such array; ``ResourceExhaustedError`` if
        more is in flight than ``slab_bytes``: wait for some.
        """
        return cuda_array.all_reduce(
            self, array, name, out, op, prescale, postscale, communicator, data_type, stream
        )

    def close(self) -> None:
        """Leaves the job. Calls under way in other threads end with ``CancelledError``.

        Arena memory stays readable as long as this object, or a tensor in it, lives.
        """
        self.raw.leave()

    def abandon(self, why: str = "") -> None:
        """As ``close``, for a rank that has failed: the others are told at once, as if this process
        had died. They hear this rank's name and ``why``, which says what has become of it, such as
        "found no data"; the first 512 bytes, as one line."""
        self.raw.abandon(exits.tellable(why))

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        # sys.exit, with whatever code, is an end in order (exits.py).
        if error_type is None or issubclass(error_type, SystemExit):
            self.close()
        else:
            self.abandon(exits.why_ended(error_type, error, "ended its part by an exception"))
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
