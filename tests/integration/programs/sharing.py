"""Rank program: keeps a line busy, or times small operations, until told to end.

Arguments: the folder of this job's notes; `busy`, `small`, or `busy:3`, which is as busy on each of
three communicators. Each rank leaves a note
`started<rank>`, and ends when rank 0 has seen the note `end`; rank 0 of `small` then leaves the
note `times`, microseconds, one a line.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from pathlib import Path

from ringd import Context, ReduceOp, TensorSpec

BUSY_BYTES = 4 << 20
# So that the line is wanted all the time: one is being finished, one goes, one begins.
BUSY_AT_ONCE = 3
SMALL_BYTES = 4 << 10
# Between small operations, so that each finds what the other job has put in its way meanwhile.
PAUSE_S = 0.003
TURNS_BETWEEN_LOOKS = 8


class Ending:
    """What rank 0 has seen, told to all ranks by an operation of its own."""

    def __init__(self, context: Context, notes: Path, communicator: int = 0) -> None:
        self._context = context
        self._note = notes / "end"
        spec = TensorSpec("ending", op=ReduceOp.MAX, shape=(1,), communicator=communicator)
        (self._registration,) = context.register([spec])
        self._address = context.arena_alloc(4)

    def come(self) -> bool:
        word = ctypes.c_float.from_address(self._address)
        word.value = float(self._context.place.rank == 0 and self._note.exists())
        self._context.wait(self._context.submit(self._registration, self._address, self._address))
        return word.value > 0


def keep_communicators_busy(context: Context, notes: Path, count: int) -> None:
    """Each from a thread of its own, so that none waits for another."""
    failures: list[BaseException] = []

    def work(communicator: int, ending: Ending) -> None:
        try:
            keep_busy(context, ending, communicator)
        except BaseException as error:
            failures.append(error)

    ranks = range(context.place.size)
    threads = []
    for number in range(count):
        communicator = context.create_communicator(f"busy {number}", ranks)
        ending = Ending(context, notes, communicator)
        threads.append(threading.Thread(target=work, args=(communicator, ending)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def keep_busy(context: Context, ending: Ending, communicator: int = 0) -> None:
    specs = [
        TensorSpec(f"busy {slot}", shape=(BUSY_BYTES // 4,), communicator=communicator)
        for slot in range(BUSY_AT_ONCE)
    ]
    registrations = context.register(specs)
    addresses = [context.arena_alloc(BUSY_BYTES) for _ in specs]
    submit = [
        (registration, address, address)
        for registration, address in zip(registrations, addresses, strict=True)
    ]
    operations = [context.submit(*arguments) for arguments in submit]
    ended = False
    while not ended:
        for _ in range(TURNS_BETWEEN_LOOKS):
            for slot in range(BUSY_AT_ONCE):
                context.wait(operations[slot])
                operations[slot] = context.submit(*submit[slot])
        ended = ending.come()
    for operation in operations:
        context.wait(operation)


def time_small(context: Context, ending: Ending) -> list[float]:
    (registration,) = context.register([TensorSpec("small", shape=(SMALL_BYTES // 4,))])
    address = context.arena_alloc(SMALL_BYTES)
    times = []
    while not ending.come():
        for _ in range(TURNS_BETWEEN_LOOKS):
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            context.wait(context.submit(registration, address, address))
            times.append(1e6 * (time.perf_counter() - began))
    return times


def main() -> None:
    notes = Path(sys.argv[1])
    with Context() as context:
        rank = context.place.rank
        ending = Ending(context, notes)
        (notes / f"started{rank}").touch()
        kind, _, count = sys.argv[2].partition(":")
        if count:
            keep_communicators_busy(context, notes, int(count))
            return
        if kind == "busy":
            keep_busy(context, ending)
            return
        times = time_small(context, ending)
        if rank == 0:
            (notes / "times").write_text("".join(f"{value}\n" for value in times))


main()
