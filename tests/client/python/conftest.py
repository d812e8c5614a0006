"""What several tests of the Python package need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ringd
from ringd.torch import gradient_slot
from ringd.torch import job as job_module
from ringd.torch.job import Communicator, Job


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """One of this process alone, without a ringd."""
    monkeypatch.delenv("RINGD_SOCKET", raising=False)
    with ringd.Context() as context:
        assert context.place.size == 1
        yield Job(context)


@pytest.fixture
def doubling(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank alone that takes itself for one of two with the same gradients, which are summed: a
    distributed optimizer's reductions double them."""
    described = gradient_slot.allreduce_spec

    def doubled(*arguments: Any) -> ringd.TensorSpec:
        return described(*arguments)._replace(postscale=2.0)

    monkeypatch.setattr(job, "world", Communicator(0, 2))
    monkeypatch.setattr(job_module, "_job", job)
    monkeypatch.setattr(gradient_slot, "allreduce_spec", doubled)
