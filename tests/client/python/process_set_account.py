"""The ranks beside this one, as calls to ringd show them: what tests of ringd.torch run against."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest
import ringd
from ringd.torch import job as jobs
from ringd.types import Place, TensorSpec

SIZE = 4


class Account:
    """Rank 0 of four. The others ask for the same process sets, and all goes well there, unless the
    test says otherwise."""

    def __init__(self, rank: int = 0) -> None:
        self.place = Place(rank, SIZE, rank, SIZE, 0, 1, 1, 0, True, 1, "node", "0")
        self.created: list[tuple[str, list[int]]] = []
        self.destroyed: list[int] = []
        self.submitted: list[TensorSpec] = []
        self.live: dict[int, TensorSpec] = {}
        self.refusal: ringd.RingdError | None = None
        self.asks_otherwise: Sequence[int] = ()
        self.has_trouble: Sequence[int] = ()

    def register(self, specs: list[TensorSpec]) -> list[int]:
        first = max(self.live, default=0) + 1
        numbers = list(range(first, first + len(specs)))
        self.live.update(zip(numbers, specs, strict=True))
        return numbers

    def unregister(self, registrations: list[int]) -> None:
        for registration in registrations:
            del self.live[registration]

    def submit(self, registration: int, source: int, destination: int) -> int:
        self.submitted.append(self.live[registration])
        return len(self.submitted)

    def submit_awaited(self, registration: int, source: int, destination: int) -> int:
        spec = self.live[registration]
        if "add_process_set" not in spec.name:
            return self.submit(registration, source, destination)
        numbers = (ctypes.c_int64 * SIZE).from_address(destination)
        own = numbers[self.place.rank]
        assert list(numbers) == [own if rank == self.place.rank else 0 for rank in range(SIZE)]
        for rank in range(SIZE):
            if spec.name == "add_process_set or remove_process_set":
                numbers[rank] = own + (rank in self.asks_otherwise)
            elif rank != self.place.rank:
                numbers[rank] = rank in self.has_trouble
        return 0

    def wait(self, operation: int, timeout_ms: int = -1) -> None:
        pass

    def wait_all(self, operations: list[int], timeout_ms: int = -1) -> None:
        pass

    def test(self, operation: int) -> bool:
        return True

    def create_communicator(self, name: str, ranks: list[int]) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.created.append((name, ranks))
        return 100 + len(self.created)

    def destroy_communicator(self, communicator: int) -> None:
        self.destroyed.append(communicator)
        self.live = {n: spec for n, spec in self.live.items() if spec.communicator != communicator}

    def arena_alloc(self, size: int) -> int:
        raise ringd.ResourceExhaustedError("the test has none")

    def close(self) -> None:
        pass


def start(monkeypatch: pytest.MonkeyPatch, rank: int = 0) -> Account:
    account = Account(rank)
    monkeypatch.setattr(jobs, "_job", jobs.Job(account))  # type: ignore[arg-type]
    return account
