"""How long a training step of ResNet-50 takes, its gradients averaged by ringd, and by PyTorch's
DistributedDataParallel with NCCL in the trainer's own process. Needs PyTorch with CUDA.

FIGURES_FOLDER, FIGURES_SECONDS: as for figures.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import ringd
import torch
import torch.distributed as dist
from device_trainer import DeviceTrainer
from raw_tensor import warm_up
from ringd import ReduceOp
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from trainer import run, say
from training_models import resnet50
from turns import take_turns

IMAGES = 32
SIDE = 224
CLASSES = 1000
SLAB_SPARE_BYTES = 64 << 20
MEET_S = 60
WORK = f"training step of ResNet-50, {IMAGES} images of {SIDE} x {SIDE} a rank"


class SlabMemory:
    """Memory of the slab, as PyTorch takes it from others."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
        }


class Steps:
    """A model with its optimizer; `average` is done between backward pass and optimizer."""

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor, average: Callable[[], None]) -> None:
        self._model, self._images, self._labels, self._average = model, images, labels, average
        self._optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)

    def step(self) -> None:
        # The gradients stay where they are.
        self._optimizer.zero_grad(set_to_none=False)
        functional.cross_entropy(self._model(self._images), self._labels).backward()
        self._average()
        self._optimizer.step()
        torch.cuda.current_stream().synchronize()


class SlabGradients:
    """A model's gradients in the slab. Each is submitted when the backward pass has it."""

    def __init__(self, trainer: DeviceTrainer, model: nn.Module, stream: int) -> None:
        self._context, self._stream = trainer.context, stream
        self._operations: list[int] = []
        for i, parameter in enumerate(model.parameters()):
            shape = tuple(parameter.shape)
            address = trainer.context.device_alloc(4 * parameter.numel())
            parameter.grad = torch.as_tensor(SlabMemory(address, shape), device=parameter.device)
            spec = ringd.TensorSpec(
                f"gradient {i}", shape=shape, op=ReduceOp.AVERAGE, memory=ringd.Memory.DEVICE
            )
            (number,) = trainer.context.register([spec])
            parameter.register_post_accumulate_grad_hook(self._submitter(number, address))

    def _submitter(self, number: int, address: int) -> Callable[[Tensor], None]:
        def submit(_: Tensor) -> None:
            self._operations.append(self._context.submit_on_stream(number, address, address, self._stream))

        return submit

    def await_all(self) -> None:
        """On the stream; the operations of the step before are over."""
        for operation in self._operations:
            self._context.stream_wait(operation, self._stream)
        self._context.wait_all(self._operations)
        self._operations.clear()


def ddp(rank: int, size: int, model: nn.Module) -> nn.Module | None:
    """The model under PyTorch's own NCCL; nothing, with a word why, if that does not come about."""
    file = Path(os.environ["FIGURES_FOLDER"]) / "torch-ranks"
    try:
        dist.init_process_group(
            "nccl",
            init_method=f"file://{file}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=MEET_S),
        )
        return DistributedDataParallel(model, device_ids=[0])
    except (RuntimeError, ValueError) as error:
        say("unavailable", way="nccl", reason=f"{type(error).__name__}: {error}")
        return None


def main() -> None:
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(resnet50().cuda())
    parameters = sum(parameter.numel() for parameter in models[0].parameters())
    trainer = DeviceTrainer(slab_bytes=4 * parameters + SLAB_SPARE_BYTES)
    warm_up(trainer)
    torch.manual_seed(2 + trainer.rank)
    images = torch.randn(IMAGES, 3, SIDE, SIDE, device="cuda")
    labels = torch.randint(CLASSES, (IMAGES,), device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        gradients = SlabGradients(trainer, models[0], stream.cuda_stream)
        ways = {"ringd": Steps(models[0], images, labels, gradients.await_all).step}
        peer = ddp(trainer.rank, trainer.size, models[1])
        if peer is not None:
            ways["nccl"] = Steps(peer, images, labels, lambda: None).step
        take_turns(trainer, WORK, 4 * parameters, float(os.environ["FIGURES_SECONDS"]), ways)
        if peer is not None:
            compare(models[0], models[1])
            dist.destroy_process_group()


def compare(one: nn.Module, other: nn.Module) -> None:
    """Both have trained alike, so they are alike but for the order of sums."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    say("compared", largest_difference=max(float((a - b).detach().abs().max()) for a, b in pairs))


run(main)
