"""What the rank programs of these tests share: float tensors without PyTorch, and events that the
test reads.

    from trainer import Trainer, run, say

    def main() -> None:
        trainer = Trainer()
        assert trainer.all_reduce("loss", 1.0) == trainer.size

    run(main)

An event is one line of JSON on standard output with the machine's monotonic time, which all
processes share.
"""

from __future__ import annotations

import array
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import ringd


def say(event: str, **details: Any) -> None:
    """Tells the test that something has happened."""
    print(json.dumps({"event": event, "at": time.monotonic()} | details), flush=True)


def say_error(error: ringd.RingdError, event: str = "error") -> None:
    """Tells the test of an error's class and text."""
    say(event, kind=type(error).__name__, text=str(error))


def run(main: Callable[[], None]) -> None:
    """Runs `main`; an error of ringd's becomes an event and exit code 3."""
    try:
        main()
    except ringd.RingdError as error:
        say_error(error)
        sys.exit(3)
    say("done")


class Operation:
    """A submission, and the memory that it needs."""

    def __init__(self, trainer: Trainer, name: str, number: int, values: array.array[float]) -> None:
        self.name = name
        self.values = values
        self._trainer = trainer
        self._number = number

    def wait(self, timeout_ms: int = -1) -> float:
        """The first element of the result."""
        self._trainer.context.wait(self._number, timeout_ms)
        return self.values[0]


class Trainer:
    """One rank; the options are those of `ringd.Context`."""

    def __init__(self, **options: Any) -> None:
        self.context = ringd.Context(**options)
        self.rank = self.context.place.rank
        self.size = self.context.place.size
        say("joined", rank=self.rank)

    def submit(
        self, name: str, value: float = 1.0, count: int = 4, *, call: str = "submit", **spec: Any
    ) -> Operation:
        """Hands `count` times `value` over to be summed; `call` is the method of
        `ringd.Context`."""
        described = ringd.TensorSpec(name, **({"shape": (count,)} | spec))
        (registration,) = self.context.register([described])
        # Room for the largest element type, whatever the test describes the tensor as.
        values = array.array("f", [value] * 2 * count)
        address = values.buffer_info()[0]
        number = getattr(self.context, call)(registration, address, address)
        return Operation(self, name, number, values)

    def all_reduce(self, name: str, value: float = 1.0, **spec: Any) -> float:
        """The sum over all ranks."""
        return self.submit(name, value, **spec).wait()

    def all_reduce_awaited(self, name: str, value: float = 1.0, **spec: Any) -> float:
        """The same, for which the ranks need no daemon if there is a rank exchange."""
        return self.submit(name, value, call="submit_awaited", **spec).wait()
