"""All checks, in the order in which they are made: what is wanted most is first. What could leave a
GPU in a bad state, or take long if something hangs, comes after the figures that tell most."""

from __future__ import annotations

from functools import partial

from tests.gpu.harness import correctness, deaths, figures, inventory
from tests.gpu.harness.check import Check
from tests.gpu.harness.figures import WITH_MPS, WITHOUT_MPS

CHECKS = (
    Check("gpus", "ringctl gpus tells what is there", inventory.check_gpus, 100),
    Check(
        "correct",
        "every type and operator, two ranks on a GPU, where trainers launch",
        partial(correctness.check_correct, launch="trainer"),
        100,
    ),
    Check(
        "engine-launches",
        "the same where engines launch",
        partial(correctness.check_correct, launch="engine"),
        100,
    ),
    Check(
        "other-user",
        "engines launch behind the file wall of a ringd of another user",
        correctness.check_other_user,
        100,
    ),
    Check(
        "host-path",
        "the same by host memory, without NCCL",
        partial(correctness.check_correct, launch="host"),
        100,
    ),
    Check("several-ranks", "the same with four ranks on a GPU", correctness.check_several_ranks, 100),
    Check("one-node", "the same with all ranks on one node", correctness.check_one_node, 100),
    Check("ranks-of-a-node", "the same with two ranks on each node", correctness.check_ranks_of_a_node, 100),
    Check(
        "figures",
        "all-reduces beside NCCL in the trainer",
        partial(figures.check_figures, mode=WITHOUT_MPS),
        120,
    ),
    Check("trainer-killed", "kill -9 of a trainer amid a collective", deaths.check_trainer_killed, 100),
    Check("engine-killed", "kill -9 of an engine amid a collective", deaths.check_engine_killed, 100),
    Check("ringd-killed", "kill -9 of a ringd amid a collective", deaths.check_ringd_killed, 100),
    Check(
        "training",
        "a training step beside PyTorch's own",
        partial(figures.check_training, mode=WITHOUT_MPS),
        90,
    ),
    Check("figures-mps", "as figures, with MPS", partial(figures.check_figures, mode=WITH_MPS), 120),
    Check("training-mps", "as training, with MPS", partial(figures.check_training, mode=WITH_MPS), 90),
)
