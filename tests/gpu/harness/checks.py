"""All checks, in the order in which they are made: what could leave a GPU in a bad state is last
but for the figures."""

from __future__ import annotations

from tests.gpu.harness import correctness
from tests.gpu.harness.check import Check

CHECKS = (
    Check("correct", "every type and operator, two ranks on a GPU", correctness.check_correct, 100),
    Check("several-ranks", "the same with four ranks on a GPU", correctness.check_several_ranks, 100),
    Check("ranks-of-a-node", "the same with two ranks on each node", correctness.check_ranks_of_a_node, 100),
)
