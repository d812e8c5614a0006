"""An optimizer whose gradients are those of all ranks."""

# ruff: noqa: N802 - DistributedOptimizer is Horovod's name
from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ringd.errors import FailedPreconditionError, InvalidArgumentError
from ringd.torch import gradient_messages
from ringd.torch.allreduce import Average, checked_op
from ringd.torch.compression import Compression, Compressor
from ringd.torch.gradient_reduction import GradientReduction, refuse_step_past_reductions
from ringd.torch.process_set import ProcessSet, global_process_set
from ringd.torch.shared_state import sharing
from ringd.torch.step_methods import methods_like
from ringd.torch.uncompiled import uncompiled
from ringd.types import ReduceOp

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ringd.torch import optimizer_types as types


class DistributedMixin:
    """What an optimizer's class gets on top of its own: it reduces gradients before it uses
    them."""

    _reduction: GradientReduction
    _should_synchronize: bool
    _wrapped: weakref.ref[torch.optim.Optimizer]
    param_groups: list[dict[str, Any]]

    @uncompiled
    def synchronize(self) -> None:
        """Waits until every ``p.grad`` is the reduced one. ``step`` does it, unless
        ``skip_synchronize`` says no. A second call reduces all once more, with a warning."""
        if self._reduction.synchronized:
            warnings.warn(gradient_messages.reduced_twice("synchronize", "once is enough"), stacklevel=3)
        self._reduction.synchronize(self.param_groups)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For a ``step`` after an explicit ``synchronize``, as gradient clipping needs it."""
        outer, self._should_synchronize = self._should_synchronize, False
        try:
            yield
        finally:
            self._should_synchronize = outer

    @uncompiled
    def step(self, closure: Any = None, *arguments: Any, **options: Any) -> Any:
        """Reduces what is not yet reduced, then steps as the optimizer itself does, which gets what
        else it is given.

        A closure's gradients are reduced after each call, and so is a loss that it returns, for all
        ranks to decide alike: what the optimizer gets, and ``step`` returns, is the ranks' average
        (with ``op=Sum`` their sum), without a graph. In ``skip_synchronize`` both are the
        closure's to reduce.
        """
        wrapped = self._wrapped()
        if wrapped is not None:
            # Schedulers that were made before wrapping look here, and would warn of their order.
            wrapped._opt_called = True  # type: ignore[attr-defined]
        # A closure's backward passes come within the step, which mostly begins with them. One that
        # begins with gradients of before (SAM's) uses them as they are.
        has_closure = callable(closure)
        uses_earlier = not has_closure or callable(getattr(type(self), "first_step", None))
        if not self._should_synchronize:
            self._reduction.refuse_unreduced(amid_passes=uses_earlier)
            if has_closure:
                closure = self._refused_after(closure)
        elif has_closure:
            if self._reduction.pending and uses_earlier:
                self.synchronize()
            closure = self._synchronized_after(closure)
        else:
            if self._reduction.synchronized:
                how = "step so: with optimizer.skip_synchronize(): optimizer.step()"
                warnings.warn(gradient_messages.reduced_twice("step", how), stacklevel=3)
                self._reduction.used()
            elif self._is_scaled() or options.get("grad_scaler") is not None:
                self._refuse_scaled()
            self.synchronize()
        with self._using():
            if closure is None and not arguments:
                return super().step(**options)  # type: ignore[misc]
            return super().step(closure, *arguments, **options)  # type: ignore[misc]

    # For PyTorch, which else puts hooks around this one, too, when a state has been loaded. They
    # are around the optimizer's own step, and see reduced gradients.
    step.hooked = True  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """For what uses reduced gradients. What that calls of this optimizer is a part of it."""
        self._reduction.used()
        with self.skip_synchronize():
            yield

    def _is_scaled(self) -> bool:
        """Whether GradScaler leaves to this step what it mostly does itself."""
        return (
            getattr(self, "_step_supports_amp_scaling", False)
            and "grad_scale" in vars(self)
            and getattr(self, "found_inf", None) is not None
        )

    def _refuse_scaled(self) -> None:
        try:
            self._reduction.refuse_scaled()
        except FailedPreconditionError:
            # GradScaler takes them away after a step that ends well only.
            for name in ("grad_scale", "found_inf"):
                vars(self).pop(name, None)
            raise

    def _refused_after(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Whoever skips the synchronization has one in the closure, if that has a backward pass."""

        def evaluate(*arguments: Any, **options: Any) -> Any:
            loss = closure(*arguments, **options)
            self._reduction.refuse_unreduced(amid_passes=False)
            return loss

        return evaluate

    def _synchronized_after(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(*arguments: Any, **options: Any) -> Any:
            loss = closure(*arguments, **options)
            # One that the optimizer has called for the loss alone has computed none.
            computes = torch.is_grad_enabled() or bool(self._reduction.pending)
            if computes and not self._reduction.synchronized:
                self.synchronize()
            self._reduction.used()
            return self._reduction.reduced_loss(loss)

        return evaluate

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Gradients are summed over so many backward passes from now on. Between ``step`` and the
        next backward pass.

        Raises ``FailedPreconditionError`` amid passes, ``ValueError`` for less than 1.
        """
        _check_passes(passes)
        self._reduction.set_passes_per_step(passes)

    @uncompiled
    def zero_grad(self, *args: Any, **options: Any) -> None:
        """As the optimizer's own, with its arguments. Passes of ``backward_passes_per_step`` count
        from the beginning again.

        Gradients that are being reduced are waited for and thrown away; a warning says so the first
        time.
        """
        self._reduction.restart(self.param_groups)
        super().zero_grad(*args, **options)  # type: ignore[misc]

    @uncompiled
    def load_state_dict(self, *arguments: Any, **options: Any) -> None:
        """As the optimizer's own."""
        super().load_state_dict(*arguments, **options)  # type: ignore[misc]
        wrapped: Any = self._wrapped()
        if wrapped is not None:
            # The class may have a way of its own, without PyTorch's hooks.
            wrapped.param_groups, wrapped.state = self.param_groups, self.state  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a DistributedOptimizer can't be copied or pickled: its hooks are those of this job. Use "
            "optimizer.state_dict() and load_state_dict()"
        )

    @uncompiled
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own; the new parameters are reduced too."""
        super().add_param_group(param_group)  # type: ignore[misc]
        self._reduction.take_in(self.param_groups)


@overload
def DistributedOptimizer(
    optimizer: torch.optim.AdamW,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.AdamW: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.Adam,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.Adam: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.Adadelta,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.Adadelta: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.Adagrad,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.Adagrad: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.Adamax,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.Adamax: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.ASGD,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.ASGD: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.LBFGS,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.LBFGS: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.NAdam,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.NAdam: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.RAdam,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.RAdam: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.RMSprop,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.RMSprop: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.Rprop,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.Rprop: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.SGD,
    named_parameters: types.NamedParameters = ...,
    **options: Unpack[types.Options],
) -> types.SGD: ...
@overload
def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: types.NamedParameters = ...,
    compression: type[Compressor] = ...,
    backward_passes_per_step: int = ...,
    op: ReduceOp = ...,
    gradient_predivide_factor: float = ...,
    num_groups: int = ...,
    groups: Any = ...,
    sparse_as_dense: bool = ...,
    process_set: ProcessSet = ...,
) -> types.Distributed: ...
def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """`optimizer`, made to step with the gradients of all ranks, or those of a process set.

    The result has `optimizer`'s class among its own, its state and its settings; use it in
    `optimizer`'s place. It also has ``set_backward_passes_per_step()``, and ``synchronize()`` and
    ``skip_synchronize()``, for what comes between the reduction and the step:

        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    optimizer: any of PyTorch's, or a class of your own.
    named_parameters: ``model.named_parameters()``; names in messages are then the model's. All
        ranks must name the same parameters. Default: their order in the optimizer, which must
        agree.
    compression: ``Compression.fp16`` or ``bf16`` halves what float32 gradients take on the way.
        Default: ``Compression.none``.
    backward_passes_per_step: gradients are summed over so many backward passes before they are
        reduced. Default: 1.
    op: Average or Sum (or Min, Max, Product). Default: Average.
    gradient_predivide_factor: an average is divided by it before the sum, and by
        ``process_set.size() / factor`` after. Default: 1.0.
    num_groups, groups: Horovod's hints on what to fuse, without effect: ringd learns it.
    sparse_as_dense: False. Gradients have to be dense: ``Embedding(sparse=False)``.
    process_set: the ranks whose gradients are reduced. On other ranks the optimizer steps with
        their own gradients, and waits for nobody. Default: all.

    Raises ``FailedPreconditionError`` without ``init()`` or if the process set is not registered,
    ``ValueError`` for impossible arguments.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, DistributedMixin):
        raise InvalidArgumentError("this optimizer is distributed already")
    if sparse_as_dense:
        raise InvalidArgumentError(
            "sparse_as_dense=True is Horovod's; ringd moves dense gradients only. Make embeddings with "
            "sparse=False, as they are by default, and leave the argument out"
        )
    _check_passes(backward_passes_per_step)
    if gradient_predivide_factor <= 0:
        raise ValueError("gradient_predivide_factor must be above 0")
    op = checked_op(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average only")
    base = type(optimizer)
    methods = methods_like(base, DistributedMixin.step)
    distributed: Any = object.__new__(type(base.__name__, (DistributedMixin, base), methods))
    # State and groups are shared with `optimizer`. Not a step() that a scheduler has put around the
    # old one: it would go past the reduction.
    distributed.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    distributed._should_synchronize = True
    distributed._wrapped = weakref.ref(optimizer)
    distributed._reduction = GradientReduction(
        optimizer.param_groups,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        process_set,
    )
    _watch_steps()
    if hasattr(optimizer, "_optimizer_load_state_dict_post_hooks"):  # not without its __init__
        # Both optimizers have the same hooks.
        optimizer.register_load_state_dict_post_hook(sharing(optimizer))
    return distributed


def _check_passes(passes: int) -> None:
    if passes < 1:
        raise ValueError("backward_passes_per_step must be at least 1")


@functools.cache
def _watch_steps() -> None:
    """From now on each optimizer's step is looked at, whoever has made it: one over the same
    parameters (the one that was wrapped, or one within it) would go past the reduction."""
    register_optimizer_step_pre_hook(_before_any_step)


def _before_any_step(stepping: torch.optim.Optimizer, *_: Any) -> None:
    if isinstance(stepping, DistributedMixin):
        return
    # Those that it has itself it steps through (Lookahead).
    within = [own._reduction for own in vars(stepping).values() if isinstance(own, DistributedMixin)]
    refuse_step_past_reductions(stepping, within)
