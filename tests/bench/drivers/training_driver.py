"""Trains on behalf of the benchmark, as users do: one script, four libraries.

Started once per rank, with what its library wants in the environment, as
`training_driver.py FOLDER LIBRARY RANK`. LIBRARY is one of
    ringd    ringd.torch's DistributedOptimizer
    torch    DistributedDataParallel over gloo
    horovod  Horovod's DistributedOptimizer
    alone    the same training, nothing exchanged: what computing takes
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from datetime import timedelta
from types import ModuleType

from control import Channel, Work, pin_to_core

FOLDER, LIBRARY, RANK = sys.argv[1], sys.argv[2], int(sys.argv[3])
# One core for all ranks leaves the others idle; else each has its own, as long as there are enough.
pin_to_core(0 if os.environ.get("BENCH_ONE_CORE") else RANK)

import torch  # noqa: E402  (the threads that it starts inherit the affinity)
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from training_models import Training  # noqa: E402


class Library(ABC):
    """What a user writes into his training loop."""

    @abstractmethod
    def wrap(self, training: Training) -> None:
        """Makes the training one of all ranks."""

    @abstractmethod
    def barrier(self) -> None: ...

    @abstractmethod
    def extremes(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The least and the greatest of all ranks' values."""

    @property
    @abstractmethod
    def version(self) -> str: ...

    def close(self) -> None:
        return


class Horovodlike(Library):
    """ringd and Horovod have one interface."""

    def __init__(self, name: str, module: ModuleType, version: str) -> None:
        self._name = name
        self._module = module
        self._version = version
        module.init()

    def wrap(self, training: Training) -> None:
        named = training.model.named_parameters()
        training.optimizer = self._module.DistributedOptimizer(training.optimizer, named_parameters=named)
        self._module.broadcast_parameters(training.model.state_dict(), root_rank=0)

    def barrier(self) -> None:
        self._module.barrier()

    def extremes(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        least = self._module.allreduce(value, op=self._module.Min, name="least")
        return least, self._module.allreduce(value, op=self._module.Max, name="greatest")

    @property
    def version(self) -> str:
        return f"{self._name} {self._version}"

    def close(self) -> None:
        self._module.shutdown()


class Ddp(Library):
    def __init__(self) -> None:
        size = int(os.environ["WORLD_SIZE"])
        limit = timedelta(seconds=600)
        dist.init_process_group("gloo", init_method="env://", rank=RANK, world_size=size, timeout=limit)

    def wrap(self, training: Training) -> None:
        training.model = nn.parallel.DistributedDataParallel(training.model)

    def barrier(self) -> None:
        dist.barrier()

    def extremes(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        least, greatest = value.clone(), value.clone()
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        dist.all_reduce(greatest, op=dist.ReduceOp.MAX)
        return least, greatest

    @property
    def version(self) -> str:
        return f"torch {torch.__version__} DistributedDataParallel, gloo"

    def close(self) -> None:
        dist.destroy_process_group()


class Alone(Library):
    def wrap(self, training: Training) -> None:
        return

    def barrier(self) -> None:
        return

    def extremes(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return value, value

    @property
    def version(self) -> str:
        return f"torch {torch.__version__}, nothing exchanged"


def make_library() -> Library:
    if LIBRARY == "torch":
        return Ddp()
    if LIBRARY == "alone":
        return Alone()
    if LIBRARY == "horovod":
        import horovod
        import horovod.torch as horovod_torch

        return Horovodlike("horovod", horovod_torch, horovod.__version__)
    import ringd
    import ringd.torch as ringd_torch

    return Horovodlike("ringd", ringd_torch, ringd.__version__)


class Trainer:
    """The training of the present work, kept while its model stays the same."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._model = ""
        self._training: Training | None = None

    def prepare(self, work: Work) -> str:
        """Empty, or why this work can't be done."""
        if work.model == self._model:
            return ""
        if self._training is not None:
            return "one training for each start"
        self._training = Training(work.model, RANK)
        self._model = work.model
        if self._training.counts() != work.counts:
            return f"'{work.model}' has other parameters than the row says"
        self._library.wrap(self._training)
        return ""

    def step(self) -> None:
        training = self._training
        assert training is not None
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(training.model(training.inputs), training.labels)
        loss.backward()
        training.optimizer.step()

    def agrees(self) -> bool:
        """All ranks have the same parameters after some steps with different data."""
        for _ in range(3):
            self.step()
        assert self._training is not None
        digest = torch.stack([one.detach().double().sum() for one in self._training.model.parameters()])
        least, greatest = self._library.extremes(digest)
        return bool(torch.equal(least, greatest)) and bool(digest.isfinite().all())


def serve(work: Work, trainer: Trainer, library: Library, channel: Channel) -> None:
    if problem := trainer.prepare(work):
        channel.problem(work, "error", problem)
        return
    if work.verify and not trainer.agrees():
        channel.problem(work, "error", "the ranks' parameters differ")
        return
    seconds: list[float] = []
    for sample in range(-work.warmup, work.samples):
        library.barrier()
        start = time.perf_counter()
        for _ in range(work.inner):
            trainer.step()
        if sample >= 0:
            seconds.append((time.perf_counter() - start) / work.inner)
    channel.seconds(work, seconds)


def main() -> int:
    torch.set_num_threads(1)
    library = make_library()
    channel = Channel(FOLDER, RANK)
    channel.ready(library.version)
    trainer = Trainer(library)
    for work in channel.works():
        serve(work, trainer, library, channel)
    library.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
