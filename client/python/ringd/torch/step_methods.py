"""Methods that a distributed optimizer has because the one that was wrapped has them."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from ringd.torch.uncompiled import uncompiled

# What optimizers that step twice call it (SAM): each uses gradients, as a step does.
_PARTS_OF_STEPS = ("first_step", "second_step")


def methods_like(base: type, step: Callable[..., Any]) -> dict[str, Any]:
    """By name; `step` is the distributed optimizers'."""
    methods: dict[str, Any] = {
        name: _reduced_before(part) for name in _PARTS_OF_STEPS if callable(part := getattr(base, name, None))
    }
    with contextlib.suppress(TypeError, ValueError):  # of a step in C nothing is known
        if "grad_scaler" in inspect.signature(base.step).parameters:  # type: ignore[attr-defined]
            methods["step"] = _with_scaler(step)
    return methods


def _reduced_before(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a step, as ``step`` does it: with gradients that have been reduced."""

    @functools.wraps(part)
    @uncompiled
    def reduced(self: Any, *arguments: Any, **options: Any) -> Any:
        if not self._should_synchronize:
            self._reduction.refuse_unreduced()
        elif not self._reduction.synchronized:
            self.synchronize()
        with self._using():
            return part(self, *arguments, **options)

    return reduced


def _with_scaler(step: Callable[..., Any]) -> Callable[..., Any]:
    """GradScaler hands itself to steps that have such an argument."""

    @uncompiled
    def scaled(
        self: Any, closure: Any = None, *arguments: Any, grad_scaler: Any = None, **options: Any
    ) -> Any:
        if grad_scaler is not None:
            options["grad_scaler"] = grad_scaler
        return step(self, closure, *arguments, **options)

    scaled.hooked = True  # type: ignore[attr-defined]  # as step's
    return scaled
