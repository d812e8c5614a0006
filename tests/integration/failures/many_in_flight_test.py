"""A rank dies while the others have all gradients of a large model in flight, in the arena: all of
them hear of it within a second, however many there are."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    wait_for_all,
    wait_for_event,
)

TRAINING = """
    import os
    import signal
    import time

    import ringd.torch as hvd
    import torch
    from trainer import run, say

    LAYERS = 200


    def main():
        hvd.init()
        layers = [torch.nn.Parameter(torch.ones(4096)) for _ in range(LAYERS)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers, lr=0.1))
        for step in range(3):
            optimizer.zero_grad()
            torch.stack([layer.sum() for layer in layers]).sum().backward()
            if step == 2:
                say("in flight")
            optimizer.step()
            if step == 1 and hvd.rank() == hvd.size() - 1:
                # The others' are in flight by then.
                time.sleep(1)
                say("dies")
                os.kill(os.getpid(), signal.SIGKILL)


    run(main)
"""


@pytest.mark.parametrize("layout", [[2], [4], [2, 2]], ids=str)
def test_many_gradients_in_flight_keep_nobody_from_hearing(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, TRAINING, layout)
    *survivors, victim = job.ranks
    wait_for_all(survivors, "in flight")
    dies = wait_for_event(victim, "dies")
    errors = wait_for_all(survivors, "error")
    expect_within(errors, dies["at"], 1.0)
    for error in errors:
        expect_words(error["text"], f"rank {victim.number}", "was killed by signal 9 (Killed)")
