"""What a type checker, or an editor, sees of a distributed optimizer. Nothing here exists at run
time.

Python has no intersection of types, so each of PyTorch's optimizers has a class of its own here:
``DistributedOptimizer(torch.optim.SGD(...))`` is a ``torch.optim.SGD`` that also has
``synchronize()`` and ``skip_synchronize()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypedDict

import torch
from torch import optim

from ringd.torch.compression import Compressor
from ringd.torch.optimizer import DistributedMixin
from ringd.torch.process_set import ProcessSet
from ringd.types import ReduceOp

NamedParameters: TypeAlias = Iterable[tuple[str, torch.Tensor]] | None


class Options(TypedDict, total=False):
    """The arguments of ``DistributedOptimizer`` after the first two."""

    compression: type[Compressor]
    backward_passes_per_step: int
    op: ReduceOp
    gradient_predivide_factor: float
    num_groups: int
    groups: Any
    sparse_as_dense: bool
    process_set: ProcessSet


class Distributed(DistributedMixin, optim.Optimizer):  # type: ignore[misc]
    """Any other optimizer: its own attributes are not checked."""

    def __getattr__(self, name: str) -> Any: ...


class Adadelta(DistributedMixin, optim.Adadelta): ...  # type: ignore[misc]


class Adagrad(DistributedMixin, optim.Adagrad): ...  # type: ignore[misc]


class Adam(DistributedMixin, optim.Adam): ...  # type: ignore[misc]


class Adamax(DistributedMixin, optim.Adamax): ...  # type: ignore[misc]


class AdamW(DistributedMixin, optim.AdamW): ...  # type: ignore[misc]


class ASGD(DistributedMixin, optim.ASGD): ...  # type: ignore[misc]


class LBFGS(DistributedMixin, optim.LBFGS): ...  # type: ignore[misc]


class NAdam(DistributedMixin, optim.NAdam): ...  # type: ignore[misc]


class RAdam(DistributedMixin, optim.RAdam): ...  # type: ignore[misc]


class RMSprop(DistributedMixin, optim.RMSprop): ...  # type: ignore[misc]


class Rprop(DistributedMixin, optim.Rprop): ...  # type: ignore[misc]


class SGD(DistributedMixin, optim.SGD): ...  # type: ignore[misc]
