"""An optimizer whose gradients are those of all ranks."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ringd.errors import FailedPreconditionError, InvalidArgumentError, RingdError
from ringd.torch.allreduce import Average
from ringd.torch.compression import Compression, Compressor
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Job, current
from ringd.types import ReduceOp


class GradientReduction:
    """Submits each gradient as soon as it has been accumulated, while the backward pass goes on.

    Thread safety: hooks of different parameters may run in different threads; the other methods belong to the
    thread that trains.
    Invariant: a slot is in `pending` from its submission until it has been waited for.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: ReduceOp,
        predivide_factor: float,
    ) -> None:
        self.compression = compression
        self.passes_per_step = backward_passes_per_step
        self.op = op
        self.prescale = 1.0 / predivide_factor
        self.postscale = predivide_factor
        parameters = [parameter for group in groups for parameter in group["params"]]
        self._names = _names_of(parameters, named_parameters)
        self._job: Job | None = None
        self._slots: dict[torch.Tensor, GradientSlot] = {}
        self._passes_left: dict[torch.Tensor, int] = {}
        self.pending: dict[GradientSlot, None] = {}
        # Since the last backward pass.
        self.synchronized = False
        for parameter in parameters:
            self.add(parameter)
        self._slots_of(current())

    def add(self, parameter: torch.Tensor, name: str | None = None) -> None:
        """Takes part in a parameter's backward passes, if it has any."""
        if parameter in self._passes_left or not parameter.requires_grad:
            return
        if name is not None:
            self._names[parameter] = name
        self._passes_left[parameter] = self.passes_per_step
        # Weak: an optimizer that has gone must not go on reducing. Its hooks then do nothing.
        reference = weakref.ref(self)

        def on_gradient(ready: torch.Tensor) -> None:
            reduction = reference()
            if reduction is not None:
                reduction.on_gradient(ready)

        parameter.register_post_accumulate_grad_hook(on_gradient)

    def on_gradient(self, parameter: torch.Tensor) -> None:
        """Runs in the backward pass, when the gradient of `parameter` is there."""
        job = current()
        if job.place.size == 1:
            return
        left = self._passes_left[parameter]
        if left == 0:
            raise FailedPreconditionError(
                f"the gradient of '{self._names[parameter]}' was computed more than backward_passes_per_step="
                f"{self.passes_per_step} times before step(); raise backward_passes_per_step to accumulate"
            )
        self._passes_left[parameter] = left - 1
        self.synchronized = False
        if left == 1:
            slot = self._slots_of(job)[parameter]
            slot.submit()
            self.pending[slot] = None

    def synchronize(self) -> None:
        """Submits what no backward pass has, waits for all, and raises the first failure after that."""
        job = current()
        if job.place.size > 1:
            for parameter, slot in self._slots_of(job).items():
                # Already submitted: its last pass has been counted.
                if self._passes_left[parameter] > 0:
                    slot.submit()
                    self.pending[slot] = None
        first_error: RingdError | None = None
        while self.pending:
            slot = next(iter(self.pending))
            try:
                slot.finish()
            except RingdError as error:
                first_error = first_error or error
            # An interrupt (Ctrl-C) leaves the slot here, to be waited for again.
            del self.pending[slot]
        self._passes_left = dict.fromkeys(self._passes_left, self.passes_per_step)
        if first_error is not None:
            raise first_error
        self.synchronized = True

    def _slots_of(self, job: Job) -> dict[torch.Tensor, GradientSlot]:
        """One for each parameter, registered with one call to ringd; anew after ``shutdown`` and ``init``."""
        if self._job is job and len(self._slots) == len(self._passes_left):
            return self._slots
        if self._job is not job:
            self.pending.clear()
            self._slots = {}
            self._job = job
        missing = [parameter for parameter in self._passes_left if parameter not in self._slots]
        if missing:
            slots = [
                GradientSlot(
                    job,
                    parameter,
                    f"allreduce.{self._names[parameter]}",
                    self.op,
                    self.prescale,
                    self.postscale,
                    self.compression,
                )
                for parameter in missing
            ]
            for slot, registration in zip(slots, job.register([slot.spec for slot in slots]), strict=True):
                slot.registration = registration
            self._slots.update(zip(missing, slots, strict=True))
        return self._slots


def _names_of(
    parameters: list[torch.Tensor], named: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """A name for each of `parameters`, the same on all ranks."""
    if named is None:
        return {parameter: f"parameter.{index}" for index, parameter in enumerate(parameters)}
    pairs = list(named)
    if any(not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)) for pair in pairs):
        raise ValueError(
            "named_parameters must be pairs of name and parameter, as model.named_parameters() gives"
        )
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"named_parameters has the name '{name}' more than once")
        seen.add(name)
    names = {parameter: name for name, parameter in reversed(pairs)}
    unnamed = sum(parameter not in names for parameter in parameters)
    if unnamed:
        raise ValueError(
            f"named_parameters lacks {unnamed} of the optimizer's {len(parameters)} parameters; name all or none"
        )
    return names


class DistributedMixin:
    """What an optimizer's class gets on top of its own: it reduces gradients before it uses them."""

    _reduction: GradientReduction
    _should_synchronize: bool

    def synchronize(self) -> None:
        """Waits until every ``p.grad`` is the reduced one. ``step`` does it, unless ``skip_synchronize`` says no."""
        self._reduction.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For a ``step`` after an explicit ``synchronize``, as gradient clipping needs it."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces what is not yet reduced, then steps as the optimizer itself does."""
        if self._should_synchronize:
            if closure is not None:
                # Its backward passes come within the step.
                return super().step(self._synchronized_after(closure))  # type: ignore[misc]
            if self._reduction.synchronized:
                warnings.warn(
                    "step() was called after synchronize() without skip_synchronize(): gradients are reduced twice",
                    stacklevel=2,
                )
            self.synchronize()
        self._reduction.synchronized = False
        return super().step(closure) if closure is not None else super().step()  # type: ignore[misc]

    def _synchronized_after(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            self._reduction.synchronized = False
            return loss

        return evaluate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's own; not between a backward pass and its ``step`` or ``synchronize``."""
        if self._reduction.pending:
            raise FailedPreconditionError(
                "zero_grad() was called after backward() and before step() or synchronize(): "
                "gradients are being reduced"
            )
        super().zero_grad(set_to_none)  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own; the new parameters are reduced too."""
        super().add_param_group(param_group)  # type: ignore[misc]
        groups = self.param_groups  # type: ignore[attr-defined]
        for index, parameter in enumerate(groups[-1]["params"]):
            self._reduction.add(parameter, f"group.{len(groups) - 1}.{index}")


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
) -> Any:
    """`optimizer`, made to step with the gradients of all ranks.

    The result has the class of `optimizer` among its own, its state and its settings; use it in `optimizer`'s place.

    named_parameters: ``model.named_parameters()``; names in messages are then the model's. All ranks must name the same
        parameters; without it their order in the optimizer must agree.
    compression: ``Compression.fp16`` halves what float32 gradients take on the way.
    backward_passes_per_step: gradients are summed over so many backward passes before they are reduced.
    op: Average or Sum (or Min, Max, Product).
    gradient_predivide_factor: an average is divided by it before and by ``size() / factor`` after the sum.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, DistributedMixin):
        raise InvalidArgumentError("this optimizer is distributed already")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be at least 1")
    if gradient_predivide_factor <= 0:
        raise ValueError("gradient_predivide_factor must be above 0")
    op = ReduceOp(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average only")
    base = type(optimizer)
    distributed: Any = object.__new__(type(base.__name__, (DistributedMixin, base), {}))
    # State and groups are shared with `optimizer`. Not a step() that a scheduler has put around the old one: it
    # would go past the reduction.
    distributed.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    distributed._should_synchronize = True
    distributed._reduction = GradientReduction(
        optimizer.param_groups,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
    )
    return distributed
