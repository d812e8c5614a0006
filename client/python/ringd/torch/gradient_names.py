"""Names for gradients: the same on all ranks, another for each parameter."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Mapping

import torch

from ringd.errors import FailedPreconditionError


def operation_name(gradient: str) -> str:
    """Of its all-reduce. The program's own (``allreduce(..., name=...)``) have another prefix: one
    of a parameter's name must not be taken for its gradient."""
    return f"gradient.{gradient}"


class GradientNames:
    """Which parameter's gradient has which name on a communicator, as long as that lasts.

    Two models of one class have parameters of the same names. The optimizer made first has them as
    they are; a later one gets them with its number (``optimizer_2.weight``). That depends on the
    order only in which optimizers are made, which is the same on all ranks: a name stays taken when
    its parameter has gone, because that happens earlier on one rank than on another.

    Thread safety: any thread; but then only the program's own order can make names agree.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # None: the parameter has gone, and so has what was remembered of its name elsewhere.
        self._owners: dict[str, weakref.ref[torch.Tensor] | None] = {}

    def claim(self, names: Mapping[torch.Tensor, str]) -> dict[torch.Tensor, str]:
        """The names of an optimizer's parameters, numbered if other parameters have one of them."""
        with self._lock:
            for number in itertools.count(1):
                prefix = "" if number == 1 else f"optimizer_{number}."
                chosen = {parameter: prefix + name for parameter, name in names.items()}
                if all(self._is_free(name, parameter) for parameter, name in chosen.items()):
                    self._take(chosen)
                    return chosen
        raise AssertionError("numbers have no end")

    def keep(self, names: Mapping[torch.Tensor, str]) -> None:
        """For names that an earlier communicator gave. ``FailedPreconditionError`` if they are
        another's here."""
        with self._lock:
            for parameter, name in names.items():
                if not self._is_free(name, parameter):
                    raise FailedPreconditionError(
                        f"this DistributedOptimizer was made before shutdown() and init(), or before its "
                        f"process set was added again; since then another one, too, has a gradient "
                        f"'{name}'. Make it again, with hvd.DistributedOptimizer(...) on all ranks"
                    )
            self._take(names)

    def gone(self) -> list[str]:
        """Names whose parameters have gone since the last call."""
        with self._lock:
            names = [name for name, owner in self._owners.items() if owner is not None and owner() is None]
            self._owners.update(dict.fromkeys(names))
            return names

    def _is_free(self, name: str, parameter: torch.Tensor) -> bool:
        if name not in self._owners:
            return True
        owner = self._owners[name]
        # A later optimizer may take a parameter over, and its name with it.
        return owner is not None and owner() is parameter

    def _take(self, names: Mapping[torch.Tensor, str]) -> None:
        self._owners.update((name, weakref.ref(parameter)) for parameter, name in names.items())


def names_of(
    parameters: list[torch.Tensor], named: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """A name for each of `parameters`, and for what else is named; the same on all ranks."""
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
            f"named_parameters lacks {unnamed} of the optimizer's {len(parameters)} parameters; "
            "name all or none"
        )
    return names
