"""Which gradients an optimizer reduces, and when."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ringd.errors import FailedPreconditionError, RingdError
from ringd.torch import gradient_messages, gradients_in_flight
from ringd.torch.closure_loss import reduced_loss
from ringd.torch.compression import Compressor
from ringd.torch.gradient_names import names_of, operation_name
from ringd.torch.gradient_slot import GradientSlot, describe_all
from ringd.torch.gradient_waste import GradientWaste
from ringd.torch.job import Communicator, Job, current, is_current
from ringd.torch.parameter_groups import are_those_of, parameters_of
from ringd.torch.process_set import ProcessSet, communicator_if_member
from ringd.torch.uncompiled import uncompiled
from ringd.types import ReduceOp

# All that live, so that a parameter is reduced by one of them only.
_reductions: weakref.WeakSet[GradientReduction] = weakref.WeakSet()


class GradientReduction:
    """Submits each gradient as soon as it has been accumulated, while the backward pass goes on.

    Every parameter of the optimizer is in one of three states:
    reduced (in `_slots`); frozen; or taken by an optimizer that was made later.

    Thread safety: hooks of different parameters may run in different threads; the other methods
    belong to the thread that trains.
    Invariant: a slot is in `pending` from its submission until it has been waited for, and its
        `operation` is not 0.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: ReduceOp,
        predivide_factor: float,
        process_set: ProcessSet,
    ) -> None:
        job = current()
        communicator = communicator_if_member(process_set, job)
        self.compression = compression
        self.passes_per_step = backward_passes_per_step
        self.op = op
        self.prescale = 1.0 / predivide_factor
        self.postscale = predivide_factor
        self._process_set = process_set
        # For which the slots are described, but for those in `_undescribed`.
        self._job: Job | None = None
        self._communicator: Communicator | None = None
        self._slots: dict[torch.Tensor, GradientSlot] = {}
        self._undescribed: dict[GradientSlot, None] = {}
        self._describing = threading.Lock()  # hooks come in several threads
        # By the parameter's id: PyTorch's garbage collector can't see who keeps this.
        self._hooks: dict[int, RemovableHandle] = {}
        self._frozen: dict[torch.Tensor, None] = {}
        self._has_told_of_frozen = False
        self._taken: dict[torch.Tensor, weakref.ref[GradientReduction]] = {}
        self._waste = GradientWaste()
        self.pending: dict[GradientSlot, None] = {}
        self._synchronized = False
        gradients_in_flight.end_left(job)
        # Else the hooks would keep the parameters, and these the hooks.
        weakref.finalize(self, gradients_in_flight.leave, self._hooks, self.pending).atexit = False
        parameters = parameters_of(groups)
        # Those of the groups when they were last looked at.
        self._members = parameters
        names = names_of(parameters, named_parameters)
        # Of parameters that are not here, but may be added.
        self._further_names = {
            parameter: names.pop(parameter) for parameter in names.keys() - set(parameters)
        }
        self._names = names if communicator is None else communicator.gradient_names.claim(names)
        for parameter in parameters:
            self._add(parameter)
        _reductions.add(self)
        if communicator is not None:
            job.give_back(communicator)
            self._describe(job, communicator)

    @property
    def synchronized(self) -> bool:
        """Whether gradients have been synchronized, and not computed or used since."""
        return (
            self._synchronized
            and not self.pending
            and all(slot.passes_left == self.passes_per_step for slot in self._slots.values())
        )

    def used(self) -> None:
        """The gradients are used by a step, so that they need to be synchronized again."""
        self._synchronized = False

    def set_passes_per_step(self, passes: int) -> None:
        """``FailedPreconditionError`` if there are gradients that have had some of theirs."""
        if slots := self.unreduced:
            raise FailedPreconditionError(gradient_messages.amid_passes(self._names_of(slots)))
        self.passes_per_step = passes
        for slot in self._slots.values():
            slot.passes_per_step = passes
            slot.restart_count()

    def take_in(self, groups: Iterable[dict[str, Any]]) -> None:
        """Reduces from now on what has been unfrozen, what `groups` have got, added or in the place
        of another, and what a later optimizer has left behind."""
        for parameter in [parameter for parameter in self._frozen if parameter.requires_grad]:
            del self._frozen[parameter]
            self._add(parameter)
        for parameter in [parameter for parameter, taker in self._taken.items() if taker() is None]:
            del self._taken[parameter]
            self._add(parameter)
        groups = list(groups)
        if are_those_of(groups, self._members):
            return
        # After a failure the next call goes on where this one has ended.
        unnamed: dict[torch.Tensor, str] = {}
        for number, group in enumerate(groups):
            for index, parameter in enumerate(group["params"]):
                if parameter not in self._names:
                    unnamed[parameter] = self._further_names.pop(parameter, f"group.{number}.{index}")
        communicator = self._communicator
        self._names |= unnamed if communicator is None else communicator.gradient_names.claim(unnamed)
        there = parameters_of(groups)
        for parameter in there:
            if not self._knows(parameter):
                self._add(parameter)
        removed = self._names.keys() - set(there)
        for parameter in removed:
            self._remove(parameter)
        self._members = there
        if removed and communicator is not None and self._job is not None and is_current(self._job):
            self._job.give_back(communicator)  # what the parameters that have gone had

    def _knows(self, parameter: torch.Tensor) -> bool:
        return any(parameter in some for some in (self._slots, self._frozen, self._taken))

    def _remove(self, parameter: torch.Tensor) -> None:
        """The program has put another one in its place."""
        self._stop(parameter)
        self._frozen.pop(parameter, None)
        self._taken.pop(parameter, None)
        del self._names[parameter]

    def _add(self, parameter: torch.Tensor) -> None:
        if parameter in self._slots:
            return
        if not parameter.requires_grad:
            self._frozen[parameter] = None  # PyTorch refuses it a hook
            return
        for other in list(_reductions):
            if other is not self:
                other.give(parameter, self)
        # Weak: an optimizer that has gone must not go on reducing.
        reference = weakref.ref(self)

        @uncompiled
        def on_gradient(ready: torch.Tensor) -> None:
            reduction = reference()
            if reduction is not None:
                reduction.on_gradient(ready)

        slot = GradientSlot(parameter, on_gradient, self.pending, self.passes_per_step, self.compression)
        self._slots[parameter] = slot
        self._undescribed[slot] = None
        # Weak, too: the garbage collector can't see who keeps it, and it keeps the parameter.
        self._hooks[id(parameter)] = parameter.register_post_accumulate_grad_hook(weakref.proxy(slot))

    def give(self, parameter: torch.Tensor, taker: GradientReduction) -> None:
        """Leaves `parameter` to a later optimizer, if it is reduced here."""
        if self._stop(parameter):
            self._taken[parameter] = weakref.ref(taker)

    def _stop(self, parameter: torch.Tensor) -> bool:
        """Whether it has been reduced until now. Waits for what is in flight of it."""
        slot = self._slots.get(parameter)
        if slot is None:
            return False
        if slot in self.pending:
            gradients_in_flight.discard(self.pending, slot)
        del self._slots[parameter]
        self._undescribed.pop(slot, None)
        self._hooks.pop(id(parameter)).remove()
        return True

    def on_gradient(self, parameter: torch.Tensor) -> None:
        """Runs in the backward pass, when the gradient of `parameter` is there and its hook has not
        submitted it."""
        job = current()
        communicator = self._shared_by(job)
        if communicator is None:
            self.used()  # there are other ones than those of the last synchronize()
            return
        self._describe(job, communicator)
        slot = self._slots[parameter]
        if slot.passes_left < self.passes_per_step and self._began_anew(slot):
            slot.restart_count()
        if slot.passes_left == 0:
            raise FailedPreconditionError(
                gradient_messages.too_many_passes(self._names[parameter], self.passes_per_step)
            )
        if slot.passes_left > 1:
            slot.count_pass(parameter.grad)
            return
        slot.submit(accumulated=True)

    def _shared_by(self, job: Job) -> Communicator | None:
        """Among whom gradients are reduced; None where each keeps its own: the rank is the set's
        only one, or not in it, which leaves its optimizer as it was."""
        communicator = communicator_if_member(self._process_set, job)
        return None if communicator is None or communicator.size == 1 else communicator

    def _began_anew(self, slot: GradientSlot) -> bool:
        """Whether the program has thrown away what was accumulated, as model.zero_grad() does."""
        if slot not in self.pending:
            return not slot.continues(slot.parameter.grad)
        if slot.has_submitted(slot.parameter.grad):
            return False
        self._throw_away([slot])
        return True

    def restart(self, groups: Iterable[dict[str, Any]]) -> None:
        """Before gradients are thrown away: waits for those in flight, and counts passes from the
        beginning."""
        self.take_in(groups)
        self._synchronized = False
        if self.passes_per_step == 1 and not self.pending:
            return
        if self.pending and self._communicator is not None and is_current(self._job):
            self._describe(current(), self._communicator)
            # Those of which another rank may have computed a gradient.
            for parameter, slot in self._slots.items():
                if slot in self.pending or slot.passes_left == 0 or not parameter.requires_grad:
                    continue
                # What can't be reduced its backward pass has refused, and said so.
                with contextlib.suppress(Exception):
                    slot.submit()
        try:
            self._throw_away(list(self.pending))
        except RingdError:
            self._reset_count()
            raise
        self._reset_count()
        self._agree_on_waste()

    def _reset_count(self) -> None:
        for slot in self._slots.values():
            slot.restart_count()

    def _throw_away(self, slots: list[GradientSlot]) -> None:
        """Ends what is in flight of them, and raises the first failure after that."""
        if not slots:
            return
        if is_current(self._job):
            self._waste.note(self._names_of(slots))
        gradients_in_flight.discard_all(self.pending, slots)

    def _throw_away_abandoned(self) -> None:
        """What model.zero_grad() has left in flight."""
        abandoned = [slot for slot in self.pending if slot.parameter.grad is None]
        self._throw_away(abandoned)
        for slot in abandoned:
            slot.restart_count()
        self._agree_on_waste()

    def _agree_on_waste(self) -> None:
        if self._waste.noted and is_current(self._job) and self._shared_by(current()) is not None:
            self._waste.agree(next(iter(self._names.values()), ""), self._process_set)
        else:
            self._waste.forget()

    def synchronize(self, groups: Iterable[dict[str, Any]]) -> None:
        """Submits what no backward pass has, waits for all, and raises the first failure after
        that."""
        job = current()
        self.take_in(groups)
        communicator = self._shared_by(job)
        if communicator is not None:
            self._refuse_taken()
            self._tell_of_frozen()
            self._describe(job, communicator)
            # Not what takes single gradients out of a step. Without waste this looks at one slot.
            if self._waste.noted or all(slot.parameter.grad is None for slot in self.pending):
                self._throw_away_abandoned()
            for parameter, slot in self._slots.items():
                # Already submitted: its last pass has been counted. Frozen meanwhile: as without
                # ringd.
                if slot.passes_left > 0 and (parameter.requires_grad or parameter.grad is not None):
                    slot.submit()
        changed = [slot for slot in self.pending if slot.was_changed()]
        first_error = gradients_in_flight.wait(self.pending, self._job, set(changed))
        self._reset_count()
        if first_error is None and changed:
            first_error = FailedPreconditionError(gradient_messages.changed(self._names_of(changed)))
        if first_error is not None:
            raise first_error
        self._synchronized = True

    def reduced_loss(self, loss: Any) -> Any:
        """What a closure has returned, as the ranks agree on it."""
        if self._shared_by(current()) is None:
            return loss
        name = f"loss.{next(iter(self._names.values()))}"
        return reduced_loss(loss, name, self.op, self._process_set)

    @property
    def unreduced(self) -> list[GradientSlot]:
        """Whose gradients are being reduced, or have been accumulated for that."""
        if self.passes_per_step == 1 or not is_current(self._job):
            return list(self.pending)
        return [slot for slot in self._slots.values() if slot.passes_left < self.passes_per_step]

    def refuse_unreduced(self, *, amid_passes: bool = True) -> None:
        """For a step without synchronization: ``FailedPreconditionError`` if it lacks one, and with
        `amid_passes` also if gradients have not had all of theirs."""
        slots = self.unreduced if amid_passes else list(self.pending)
        if slots:
            passes = 0 if slots[0] in self.pending else self.passes_per_step
            raise FailedPreconditionError(gradient_messages.skipped(self._names_of(slots), passes))

    def _tell_of_frozen(self) -> None:
        """Once: PyTorch steps with a gradient that the program has given to a parameter without."""
        if self._has_told_of_frozen:
            return
        names = [self._names[parameter] for parameter in self._frozen if parameter.grad is not None]
        if names:
            self._has_told_of_frozen = True
            warnings.warn(gradient_messages.frozen_with_gradient(names), stacklevel=5)

    def refuse_scaled(self) -> None:
        """For a step that GradScaler has prepared, with gradients that were not reduced:
        ``FailedPreconditionError`` if they are to be."""
        if self._shared_by(current()) is not None:
            raise FailedPreconditionError(gradient_messages.scaled())

    def refuse_step_of(self, other: torch.optim.Optimizer) -> None:
        """``FailedPreconditionError`` if `other`, which is not distributed, would use gradients as
        they are that are being reduced here."""
        slots = self.unreduced
        if not slots or not is_current(self._job):
            return
        used = set(parameters_of(other.param_groups))
        names = self._names_of(slot for slot in slots if slot.parameter in used)
        if names:
            raise FailedPreconditionError(gradient_messages.other_step(type(other).__name__, names))

    def _refuse_taken(self) -> None:
        if self._taken:
            names = [self._names[parameter] for parameter in self._taken]
            raise FailedPreconditionError(gradient_messages.taken(names))

    def _names_of(self, slots: Iterable[GradientSlot]) -> list[str]:
        return [self._name_of(slot) for slot in slots]

    def _name_of(self, slot: GradientSlot) -> str:
        return self._names[slot.parameter]

    def _describe(self, job: Job, communicator: Communicator) -> None:
        """Describes what is not yet described, with one call to ringd; everything after
        ``shutdown`` and ``init``, and where the process set has been added again."""
        if self._communicator is communicator and not self._undescribed:
            return
        with self._describing:
            self._describe_alone(job, communicator)

    def _describe_alone(self, job: Job, communicator: Communicator) -> None:
        if self._communicator is not communicator:
            communicator.gradient_names.keep(self._names)
            self.pending.clear()
            self._waste.forget()
            self._reset_count()
            self._undescribed.update(dict.fromkeys(self._slots.values()))
            self._job = job
            self._communicator = communicator
        names = {slot: operation_name(self._name_of(slot)) for slot in self._undescribed}
        describe_all(names, job, communicator, self.op, self.prescale, self.postscale)
        self._undescribed.clear()


def refuse_step_past_reductions(
    optimizer: torch.optim.Optimizer, but: Iterable[GradientReduction] = ()
) -> None:
    """``FailedPreconditionError`` if `optimizer`, which is not distributed, would step with
    gradients that a distributed one is reducing, `but` those."""
    for reduction in set(_reductions).difference(but):
        reduction.refuse_step_of(optimizer)
