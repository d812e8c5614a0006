"""What a closure's loss is to an optimizer whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import torch

from ringd.torch.allreduce import Average, Sum, allreduce
from ringd.torch.process_set import ProcessSet
from ringd.types import ReduceOp


def reduced_loss(loss: Any, name: str, op: ReduceOp, process_set: ProcessSet) -> Any:
    """The ranks' average, or their sum if gradients are summed. An optimizer may decide by the loss
    whether it evaluates again (LBFGS does), and all ranks must decide alike.

    What is not one floating-point number, or a number of Python's, stays as it is.
    """
    is_tensor = isinstance(loss, torch.Tensor)
    if is_tensor and loss.numel() == 1 and loss.is_floating_point():
        own = loss.detach()
    elif isinstance(loss, int | float):
        own = torch.tensor(float(loss), dtype=torch.float64, device="cpu")
    else:
        return loss
    reduced = allreduce(own, name=name, op=Sum if op == Sum else Average, process_set=process_set)
    return reduced if is_tensor else reduced.item()
