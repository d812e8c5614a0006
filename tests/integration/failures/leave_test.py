"""Leaving: in order it disturbs nobody; out of turn the one who left is named."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import (
    expect_within,
    expect_words,
    start_trainers,
    the_same_text,
    wait_for_all,
    wait_for_event,
)

FIRST_LEAVES = """
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        if trainer.rank == 0:
            trainer.context.close()
            say("left")
            time.sleep(20)  # what it did before does not depend on its end
        trainer.all_reduce("gradient")


    run(main)
"""

# As sys.exit does it: the context is left in order, and the process has failed.
FIRST_FAILS = """
    import sys

    from trainer import Trainer, run


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        if trainer.rank == 0:
            sys.exit(3)
        trainer.all_reduce("gradient")


    run(main)
"""

# Rank 0 gives up what the others then wait for, and uses its memory for something else.
LEAVES_AMID = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up", count=100_000) == trainer.size
        if trainer.rank == 0:
            operation = trainer.submit("gradient", count=100_000)
            time.sleep(0.3)  # ringd has told the other node's
            trainer.context.close()
            say("left")
            open(os.environ["LEFT"], "w").close()
            time.sleep(20)
        while not os.path.exists(os.environ["LEFT"]):
            time.sleep(0.001)
        say("sum", value=trainer.all_reduce("gradient", count=100_000))


    run(main)
"""

ONE_AFTER_ANOTHER = """
    import sys
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        operations = [trainer.submit(f"tensor {i}", count=100_000) for i in range(20)]
        for operation in operations:
            assert operation.wait() == trainer.size
        # Longer than the others' work may take to arrive.
        time.sleep(0.8 * trainer.rank)
        trainer.context.close()


    run(main)
"""

# The ranks of the second node leave, and it goes; the others have a communicator of their own.
OTHERS_GO_ON = """
    import os
    import time

    from trainer import Trainer, run, say


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up", count=1000) == trainer.size
        if trainer.rank == 1:
            trainer.context.close()
            say("left")
            return
        communicator = trainer.context.create_communicator("others", [0, 2])
        assert trainer.all_reduce("before", communicator=communicator) == 2
        say("ready")
        while not os.path.exists(os.environ["GONE"]):
            time.sleep(0.01)
        for step in range(100):
            assert trainer.all_reduce("after", count=100_000, communicator=communicator) == 2
            time.sleep(0.02)


    run(main)
"""

THREE_TIMES = """
    import time

    from trainer import Trainer, run, say


    def main():
        for attempt in range(3):
            trainer = Trainer()
            for step in range(10):
                result = trainer.all_reduce("gradient", float(step + attempt), count=1000)
                assert result == (step + attempt) * trainer.size
            # The first to come back meets others that have not left yet.
            time.sleep(0.1 * ((trainer.rank + attempt) % trainer.size))
            say("generation", number=trainer.context.place.generation)
            trainer.context.close()


    run(main)
"""


@pytest.mark.parametrize("layout", [[3], [1, 2], [2, 1]], ids=str)
def test_who_left_is_named_to_those_that_wait(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, FIRST_LEAVES, layout)
    left = wait_for_event(job.ranks[0], "left")
    errors = wait_for_all(job.ranks[1:], "error")
    expect_within(errors, left["at"], 4)
    expect_words(the_same_text(errors), "rank 0", "left", f"job '{job.job_id}'", "'gradient'")
    assert {error["kind"] for error in errors} == {"JobFailedError"}


def test_how_one_ended_who_had_left_is_told_on_its_node(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    job = start_trainers(cluster, FIRST_FAILS, [2])
    error = wait_for_event(job.ranks[1], "error")
    expect_words(error["text"], "rank 0", "left", "(shutdown", "then exited with code 3", "'gradient'")


@pytest.mark.parametrize("layout", [[2], [1, 1], [2, 1], [1, 2]], ids=str)
def test_what_who_left_had_submitted_goes_into_no_sum(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, LEAVES_AMID, layout, environment={"LEFT": str(cluster.folder / "left")})
    left = wait_for_event(job.ranks[0], "left")
    errors = wait_for_all(job.ranks[1:], "error")
    expect_within(errors, left["at"], 4)
    expect_words(the_same_text(errors), "rank 0", "left", "job", "'gradient'")
    assert '"sum"' not in job.transcript()


@pytest.mark.parametrize("layout", [[3], [1, 1, 1]], ids=str)
def test_ranks_may_leave_one_after_another(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout))
    job = start_trainers(cluster, ONE_AFTER_ANOTHER, layout)
    job.expect_success()
    assert "ringd:" not in job.transcript()


@pytest.mark.parametrize("goes", ["in order", "killed"])
def test_a_node_whose_ranks_have_left_may_go(cluster: Cluster, goes: str) -> None:
    nodes = cluster.start_nodes(3)
    gone = cluster.folder / "gone"
    job = start_trainers(cluster, OTHERS_GO_ON, [1, 1, 1], environment={"GONE": str(gone)})
    wait_for_event(job.ranks[1], "left")
    for rank in (job.ranks[0], job.ranks[2]):
        wait_for_event(rank, "ready")
    assert job.ranks[1].wait() == 0
    if goes == "in order":
        assert nodes[1].terminate() == 0
    else:
        nodes[1].kill()
    gone.touch()
    job.expect_success()


@pytest.mark.parametrize("layout", [[3], [2, 1]], ids=str)
def test_a_process_may_join_three_times(cluster: Cluster, layout: list[int]) -> None:
    cluster.start_nodes(len(layout), start_timeout="20s")
    job = start_trainers(cluster, THREE_TIMES, layout)
    job.expect_success()
