"""What several tests of the Python package need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ringd
from ringd.torch.job import Job


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """One of this process alone, without a ringd."""
    monkeypatch.delenv("RINGD_SOCKET", raising=False)
    with ringd.Context() as context:
        assert context.place.size == 1
        yield Job(context)
