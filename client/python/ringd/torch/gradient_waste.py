"""Gradients that are thrown away although the ranks have reduced them, or are about to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ringd.errors import FailedPreconditionError
from ringd.torch import gradient_messages
from ringd.torch.agreement import are_equal_on_all
from ringd.torch.process_set import ProcessSet


class GradientWaste:
    """What one optimizer's ranks have thrown away.

    A rank that alone throws gradients away, which the others have used, would go on with those of
    their next step. So they agree on it: such a rank waits for the others, and that is told by the
    agreement's name.

    Thread safety: as ``GradientReduction``.
    """

    def __init__(self) -> None:
        self._told = False
        self._names: set[str] = set()  # since the last agreement

    def note(self, names: Sequence[str]) -> None:
        """Warns of it the first time."""
        self._names.update(names)
        if not self._told:
            self._told = True
            warnings.warn(gradient_messages.waste(names), stacklevel=5)

    @property
    def noted(self) -> bool:
        """Whether something has been thrown away that the ranks have not agreed on."""
        return bool(self._names)

    def forget(self) -> None:
        """For ranks that no other rank waits for, and in another job."""
        self._names.clear()

    def agree(self, first_parameter: str, process_set: ProcessSet) -> None:
        """Blocks until all ranks of the set have thrown something away. Requirement: ``noted``.
        ``FailedPreconditionError`` if they are not the same gradients."""
        names = sorted(self._names)
        self.forget()
        name = f"zero_grad() of gradients that are being reduced, of {first_parameter}"
        if not are_equal_on_all(names, name, process_set):
            raise FailedPreconditionError(gradient_messages.different_waste(names))
