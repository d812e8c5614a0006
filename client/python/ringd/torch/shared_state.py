"""Two optimizers that have one state, as the distributed one and the one that was wrapped."""

from __future__ import annotations

from collections.abc import Callable

import torch


def sharing(optimizer: torch.optim.Optimizer) -> Callable[[torch.optim.Optimizer], None]:
    """A hook for both optimizers: after ``load_state_dict``, which gives one of them new groups and
    a new state, they share them again. So do schedulers, which hold the one or the other."""
    groups, state = optimizer.param_groups, optimizer.state

    def after_load(loaded: torch.optim.Optimizer) -> None:
        if loaded.param_groups is not groups:
            new_groups = loaded.param_groups
            for group, new_group in zip(groups, new_groups, strict=False):
                if group is not new_group:
                    group.clear()
                    group.update(new_group)
            groups[len(new_groups) :] = new_groups[len(groups) :]
            loaded.param_groups = groups
        if loaded.state is not state:
            new_state = loaded.state
            state.clear()
            state.update(new_state)
            loaded.state = state

    return after_load
