"""Fewer bytes on the way: gradients in a shorter type."""

from __future__ import annotations

from typing import Protocol

import torch


class Compressor(Protocol):
    """Two functions; what the first gives beside the tensor is handed to the second."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]: ...

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor: ...


class NoneCompressor:
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor:
        return tensor


def _shortened(tensor: torch.Tensor, to: torch.dtype) -> tuple[torch.Tensor, torch.dtype]:
    longer = tensor.dtype.is_floating_point and tensor.element_size() > to.itemsize
    return (tensor.to(to) if longer else tensor), tensor.dtype


class FP16Compressor:
    """Floating-point tensors travel, and are summed, as float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return _shortened(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor:
        return tensor.to(context)


class BF16Compressor:
    """Floating-point tensors travel, and are summed, as bfloat16: float32's range with fewer
    digits."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return _shortened(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor:
        return tensor.to(context)


class Compression:
    """What ``compression=`` takes: ``none``, ``fp16`` or ``bf16``."""

    none: type[Compressor] = NoneCompressor
    fp16: type[Compressor] = FP16Compressor
    bf16: type[Compressor] = BF16Compressor
