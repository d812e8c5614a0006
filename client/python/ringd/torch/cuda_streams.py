"""What only PyTorch with CUDA has: tensors on GPUs, and streams. Nothing else here asks for it.

Not yet run on a GPU: the tests put emulated ones in the place of these functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def ordinal(tensor: torch.Tensor) -> int:
    """Of its GPU, as CUDA counts in this process."""
    return tensor.get_device()


def address(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def current(tensor: torch.Tensor) -> int:
    """The address of the stream to which this thread's work on the tensor's GPU goes."""
    return torch.cuda.current_stream(tensor.device).cuda_stream


def keep_for_current(tensor: torch.Tensor) -> None:
    """If the tensor goes, its memory is not used again before what is on the current stream is
    done."""
    tensor.record_stream(torch.cuda.current_stream(tensor.device))


def is_capturing(tensor: torch.Tensor) -> bool:
    """Whether the current stream's work becomes part of a CUDA graph."""
    with torch.cuda.device(tensor.device):
        return torch.cuda.is_current_stream_capturing()


def empty_beside(tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor on the same GPU."""
    return torch.empty(tuple(shape), dtype=dtype, device=tensor.device)


def copy_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A new tensor. Waits for the current stream."""
    return tensor.detach().to("cpu", copy=True)
