"""What is said where gradients would be lost, or used before they are those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """The first of them, and how many there are beside it."""
    return f"'{names[0]}'" + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def too_many_passes(name: str, passes: int) -> str:
    times = "once" if passes == 1 else f"{passes} times"
    return (
        f"the gradient of '{name}' was computed again before step() or "
        f"zero_grad(), and it is being reduced already: backward_passes_per_step={passes} says "
        f"that it is computed {times}. To accumulate over {passes + 1} passes: "
        f"DistributedOptimizer(..., backward_passes_per_step={passes + 1}). If this pass is for "
        "another optimizer (a GAN's generator), freeze the parameters that it only passes through: "
        "discriminator.requires_grad_(False) before it, requires_grad_(True) after it. A parameter "
        "that several checkpointed segments share is computed once for each of them, unless with "
        "checkpoint(..., use_reentrant=False). "
        "model.zero_grad(set_to_none=False) writes zeros where gradients are being reduced: "
        "optimizer.zero_grad(set_to_none=False) waits for them first"
    )


def reduced_twice(call: str, instead: str) -> str:
    return f"{call}() was called after synchronize(): gradients are reduced twice; {instead}"


def waste(names: Sequence[str]) -> str:
    return (
        f"zero_grad() throws away gradients that the ranks have reduced: that of {listed(names)}. If they "
        "come from a backward pass for another optimizer (a "
        "GAN's generator), freeze the parameters that it only passes through: "
        "discriminator.requires_grad_(False) before it, requires_grad_(True) after it. If a step "
        "is left out, it must be left out on all ranks"
    )


def different_waste(names: Sequence[str]) -> str:
    return (
        f"zero_grad() has thrown away reduced gradients here, that of {listed(names)}, and those of "
        "other parameters on other ranks. All ranks have to leave out the same backward passes; with "
        "parameters that some of them do not use, throw them away by optimizer.zero_grad(), not by "
        "model.zero_grad()"
    )


def changed(names: Sequence[str]) -> str:
    return (
        f"the gradient of {listed(names)} was changed after "
        "backward(), while it was being reduced over the ranks, so the change is lost. Before "
        "gradients are clipped, unscaled or replaced, call optimizer.synchronize(); after that, "
        "step so: with optimizer.skip_synchronize(): optimizer.step(). To leave out a whole backward "
        "pass: optimizer.zero_grad()"
    )


def frozen_with_gradient(names: Sequence[str]) -> str:
    return (
        f"{listed(names)} did not require a gradient when it came to this DistributedOptimizer, and has "
        "one now that the program has set (p.grad = ...): it is not reduced, and each rank steps with "
        "its own. Reduce it with hvd.allreduce_, or let the parameter require a gradient"
    )


def skipped(names: Sequence[str], passes: int) -> str:
    """`passes`: ``backward_passes_per_step``, if some of them are still to come; else 0."""
    state = f"is not reduced, amid its {passes} passes" if passes else "is still being reduced"
    return (
        f"step() in skip_synchronize(), but the gradient of {listed(names)} {state}: call "
        "optimizer.synchronize() before it"
    )


def amid_passes(names: Sequence[str]) -> str:
    return (
        f"set_backward_passes_per_step(), but the gradient of {listed(names)} is still being reduced, or "
        "accumulated: call it between step() and the next backward pass"
    )


def other_step(optimizer: str, names: Sequence[str]) -> str:
    return (
        f"step() of an optimizer ({optimizer}) that is not distributed, but the gradient of {listed(names)} "
        "is still being reduced, or accumulated. Call step() of the one that DistributedOptimizer has "
        "returned: optimizer = hvd.DistributedOptimizer(optimizer, ...). An optimizer that steps through "
        "another one, or in several calls, needs reduced gradients before each of them: "
        "optimizer.synchronize()"
    )


def scaled() -> str:
    return (
        "GradScaler has looked for infinities in gradients that were not reduced, and the ranks may have "
        "found different ones. Reduce them before: optimizer.synchronize(); with "
        "optimizer.skip_synchronize(): scaler.step(optimizer)"
    )


def taken(names: Sequence[str]) -> str:
    return (
        f"{listed(names)} belongs to another "
        "DistributedOptimizer, made after this one, and only one can reduce it. Give all "
        "parameters to one optimizer "
        "(optimizer.add_param_group({'params': ...})), or delete the other one first (del optimizer)"
    )


def interrupted(name: str) -> str:
    return (
        f"'{name}' was being submitted when an interrupt came, and may have been or not: another "
        "submission could be summed with other ranks' next one. Begin again: shutdown() and init() on "
        "all ranks"
    )
