"""The hook that counts backward passes, of which the last one submits. One rank alone, whose
all-reduces double."""

from __future__ import annotations

import pytest
import torch
from ringd.torch.job import Job

from tests.client.python.hooked import LARGE, SMALL, Hooked
from tests.client.python.reduced import gradient_of


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_passes_are_counted_and_the_last_one_submits(job: Job, elements: int) -> None:
    hooked = Hooked(job, elements, passes=3)
    for left in (2, 1):
        hooked.backward()
        assert not hooked.slow_calls
        assert (hooked.hook.passes_left, hooked.hook.operation) == (left, 0)
        # No pass has come since.
        assert not hooked.hook.continues(gradient_of(hooked.parameter))
    hooked.backward()
    hooked.expect_submitted()
    hooked.wait()
    assert gradient_of(hooked.parameter).unique().tolist() == [6]
    assert hooked.hook.passes_left == 3


def test_passes_of_gradients_that_share_a_buffer_go_on(job: Job) -> None:
    """Views of one tensor count its changes together."""
    buffer = torch.zeros(2 * SMALL)
    first, second = Hooked(job, SMALL, passes=3), Hooked(job, SMALL, passes=3)
    for hooked, part in zip((first, second), buffer.split(SMALL), strict=True):
        hooked.parameter.grad = part
    for left in (2, 1):
        for hooked in (first, second):
            hooked.backward()
            assert hooked.hook.passes_left == left


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_a_gradient_thrown_away_between_passes_is_left_to_python(job: Job, elements: int) -> None:
    for in_place in (True, False):
        hooked = Hooked(job, elements, passes=2)
        hooked.backward()
        if in_place:
            gradient_of(hooked.parameter).zero_()
        else:
            hooked.parameter.grad = None
        hooked.backward()
        hooked.expect_left_to_python()
        assert not hooked.hook.continues(gradient_of(hooked.parameter))
        assert hooked.hook.passes_left == 1
