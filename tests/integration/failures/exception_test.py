"""A Python trainer ends by an exception: its job hears which."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.failures.events import expect_words, start_trainers, the_same_text, wait_for_all

RAISES_IN_THE_MIDDLE = """
    import os
    import threading

    from trainer import Trainer, run


    def raises():
        raise KeyError("in a thread")


    def main():
        trainer = Trainer()
        assert trainer.all_reduce("warm-up") == trainer.size
        if trainer.rank == 1:
            trainer.submit("loss")  # which the others lack
            thread = threading.Thread(target=raises)
            thread.start()
            thread.join()
        assert trainer.all_reduce("after the thread") == trainer.size
        if trainer.rank == 1:
            raise eval(os.environ["RAISES"])
        trainer.all_reduce("gradient")


    run(main)
"""


@pytest.mark.tells_exit
@pytest.mark.parametrize("layout", [[3], [1, 2]], ids=["one node", "two nodes"])
def test_an_uncaught_exception_is_told(cluster: Cluster, layout: list[int]) -> None:
    nodes = cluster.start_nodes(len(layout))
    raises = {"RAISES": r"ValueError('no such file:\n\x1b[2J data')"}
    job = start_trainers(cluster, RAISES_IN_THE_MIDDLE, layout, environment=raises)
    text = the_same_text(wait_for_all([job.ranks[0], job.ranks[2]], "error"))
    who = f"rank 1, pid {job.ranks[1].pid} on {nodes[-1].name} ({job.program.name})"
    error = "ValueError: no such file: ?[2J data"
    expect_words(text, f"{who}, ended by an uncaught exception: {error}, while", "'loss'")
    assert job.ranks[1].wait() == 1
    expect_words(job.ranks[1].output, "Traceback", "in a thread")


@pytest.mark.tells_exit
@pytest.mark.parametrize(
    ("raises", "words"),
    [
        ("KeyboardInterrupt()", ", was interrupted (KeyboardInterrupt), while"),
        ("SystemExit(7)", " left job "),
    ],
)
def test_an_interrupt_and_an_exit_are_told_as_such(cluster: Cluster, raises: str, words: str) -> None:
    cluster.start_nodes(1)
    job = start_trainers(cluster, RAISES_IN_THE_MIDDLE, [3], environment={"RAISES": raises})
    text = the_same_text(wait_for_all([job.ranks[0], job.ranks[2]], "error"))
    expect_words(text, "rank 1", words)
    assert "uncaught" not in text, text


def test_the_end_of_a_with_block_tells_its_exception(cluster: Cluster) -> None:
    cluster.start_nodes(1)
    program = """
        from trainer import Trainer, run


        def main():
            trainer = Trainer()
            try:
                with trainer.context:
                    assert trainer.all_reduce("warm-up") == trainer.size
                    if trainer.rank == 1:
                        raise OSError("no data")
                    trainer.all_reduce("gradient")
            except OSError:
                pass


        run(main)
    """
    job = start_trainers(cluster, program, [3])
    text = the_same_text(wait_for_all([job.ranks[0], job.ranks[2]], "error"))
    expect_words(text, "rank 1", ", ended its part by an exception: OSError: no data, w")
    assert job.ranks[1].wait() == 0
