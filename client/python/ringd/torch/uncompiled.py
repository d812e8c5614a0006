"""Functions that ``torch.compile`` leaves as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable)


def uncompiled(function: _Function) -> _Function:
    """`function`, which Dynamo neither compiles nor traces into, nor what it calls.

    What ``torch.compiler.disable`` does, which would import Dynamo (seconds, 100 MB) into programs
    that do not compile, and cost each call some microseconds.
    """
    try:
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
    except (ImportError, AttributeError):  # a PyTorch before 2.7
        return torch._compile._disable_dynamo(function) if hasattr(torch, "_compile") else function
    # Dynamo looks here before it traces into a call.
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function
