"""`ringctl trace` shows the operations of all communicators of a job."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.trace_events import expect_in_order, expect_one_clock, finished, slices_of
from tests.integration.trace_test import STAGES, end_steps, start_steps, trace

# In each step a sum on every communicator of the rank: by name on those of PAIRS, and by order on
# the one of all ranks.
STEPS = """
    import os
    import time
    from array import array

    from ringd import CollectiveKind as Kind
    from trainer import Trainer, run, say

    PAIRS = {"left": [0, 1], "middle": [1, 2], "right": [2, 3]}


    def main():
        trainer = Trainer()
        context, rank, size = trainer.context, trainer.rank, trainer.size
        ordered = context.create_communicator("tp", range(size), matching="order")
        pairs = [
            context.create_communicator(name, ranks)
            for name, ranks in PAIRS.items()
            if rank in ranks and max(ranks) < size
        ]
        step = 0
        while True:
            sums = [trainer.submit("gradient", count=40_000, communicator=pair) for pair in pairs]
            room = array("f", [1.0] * 40_000)
            where = room.buffer_info()[0]
            context.wait(context.submit_in_order(ordered, Kind.ALLREDUCE, where, where, 40_000))
            assert room[0] == size
            for operation in sums:
                assert operation.wait() == 2
            ends = trainer.all_reduce("ends", 1.0 if os.path.exists(os.environ["END"]) else 0.0)
            step += 1
            if step == 5:
                say("steady")
            time.sleep(0.002)  # so that no event is overwritten before it is read
            if ends:
                break


    run(main)
"""
PAIRS = {"left": [0, 1], "middle": [1, 2], "right": [2, 3]}


@pytest.mark.parametrize("layout", [[3], [2, 2]], ids=["one node", "two nodes"])
def test_operations_of_every_communicator_are_in_the_trace(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    size = sum(layout)
    job = start_steps(cluster, layout, STEPS)
    loaded = trace(cluster, job, seconds=5)
    end_steps(cluster, job)
    of_rank = [finished(slices_of(loaded, f"rank {rank} ", "operations")) for rank in range(size)]
    home = [node for node, count in enumerate(layout) for _ in range(count)]
    for name, ranks in PAIRS.items():
        if max(ranks) >= size:
            continue
        tensor = f"gradient of communicator '{name}'"
        of_pair = [[event for event in events if event["name"] == tensor] for events in of_rank]
        assert [rank for rank, events in enumerate(of_pair) if events] == ranks
        of_pair = [events for events in of_pair if events]
        for events in of_pair:
            if home[ranks[0]] == home[ranks[1]]:
                expect_in_order(events, ["submitted", "arrived", "completed"], {"arrived"})
            else:
                expect_in_order(events, STAGES, {"ready", "started", "posted", "moved"})
        expect_one_clock(loaded, of_pair)
    by_order = [[event for event in events if "communicator 'tp'" in event["name"]] for events in of_rank]
    for events in by_order:
        assert all(event["name"].startswith("operation ") for event in events)
        assert all(event["args"]["operation"] == event["name"] for event in events)
    expect_one_clock(loaded, by_order)
