"""A program for Horovod that makes those of its calls which the published ImageNet example adds to
MNIST's.

A broadcast number says where to resume; rank 0 alone reads and writes checkpoints; gradients of
several backward passes make a step; the learning rate warms up; a metric is averaged in every
batch, under the same name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

PASSES = 2
BATCH = 16
RATE = 0.02


class RunningMean:
    """Of what all ranks measure, batch by batch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[torch.Tensor] = []

    def add(self, value: torch.Tensor) -> None:
        self.values.append(hvd.allreduce(value.detach(), name=self.name))

    def __float__(self) -> float:
        return float(torch.stack(self.values).mean())


def my_part(images: torch.Tensor, labels: torch.Tensor, batch_size: int) -> DataLoader:
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    return DataLoader(data, batch_size=batch_size, sampler=sampler)


def resume(folder: Path, model: nn.Module, optimizer: Any) -> int:
    """The epochs that are done already. All ranks have the same state afterwards."""
    done = len(list(folder.glob("after-*.pt")))
    done = hvd.broadcast(torch.tensor(done), root_rank=0, name="resume_from_epoch").item()
    if done > 0 and hvd.rank() == 0:
        saved = torch.load(folder / f"after-{done}.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return done


def train(model: nn.Module, optimizer: Any, loader: DataLoader, epoch: int) -> float:
    loader.sampler.set_epoch(epoch)
    mean_loss = RunningMean("train_loss")
    for number, (images, labels) in enumerate(loader, 1):
        # In the first epoch from one rank's rate to that of all.
        progress = min(1.0, epoch + number / len(loader))
        for group in optimizer.param_groups:
            group["lr"] = RATE * PASSES * (1 + progress * (hvd.size() - 1))
        optimizer.zero_grad()
        parts = list(zip(images.split(BATCH), labels.split(BATCH), strict=True))
        for some_images, some_labels in parts:
            loss = cross_entropy(model(some_images), some_labels)
            mean_loss.add(loss)
            (loss / len(parts)).backward()
        optimizer.step()
    return float(mean_loss)


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    accuracy = RunningMean("val_accuracy")
    with torch.no_grad():
        for images, labels in loader:
            accuracy.add((model(images).argmax(1) == labels).float().mean())
    model.train()
    return float(accuracy)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    loader = my_part(images[:1440], labels[:1440], BATCH * PASSES)
    test_loader = my_part(images[1440:], labels[1440:], 64)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-5),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.none,
        backward_passes_per_step=PASSES,
        op=hvd.Average,
        gradient_predivide_factor=1.0,
    )
    first = resume(options.checkpoints, model, optimizer)
    for epoch in range(first, options.epochs):
        loss = train(model, optimizer, loader, epoch)
        accuracy = evaluate(model, test_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.4f}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, options.checkpoints / f"after-{epoch + 1}.pt")
    print(f"rank {hvd.rank()}: resumed from epoch {first}, done")


if __name__ == "__main__":
    main()
