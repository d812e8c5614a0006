"""What the groups of an optimizer have."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable
from typing import Any

import torch


def are_those_of(groups: list[dict[str, Any]], parameters: list[torch.Tensor]) -> bool:
    """Whether these are the groups' parameters, in this order. Comparing them would compute."""
    if sum(len(group["params"]) for group in groups) != len(parameters):
        return False
    there = itertools.chain.from_iterable(group["params"] for group in groups)
    return all(map(operator.is_, there, parameters))


def parameters_of(groups: Iterable[dict[str, Any]]) -> list[torch.Tensor]:
    return [parameter for group in groups for parameter in group["params"]]
