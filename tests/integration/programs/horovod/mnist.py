"""A program for Horovod that makes each of its calls which the published MNIST example makes.

init, rank, size, local_rank, local_size, nccl_built; broadcasts of parameters and optimizer state
before wrapping; DistributedOptimizer with compression, op and gradient_predivide_factor; a
GradScaler between synchronize and skip_synchronize; samplers by rank and size; metrics averaged by
a named allreduce.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from filelock import FileLock
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-mixed-precision", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """One process of a machine at a time, as where the first one downloads."""
    with FileLock(Path(tempfile.gettempdir()) / "digits.lock"):
        raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(raw.target)
    return TensorDataset(images[:1440], labels[:1440]), TensorDataset(images[1440:], labels[1440:])


def my_part(data: TensorDataset, batch_size: int, **options: Any) -> DataLoader:
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    return DataLoader(data, batch_size=batch_size, sampler=sampler, **options)


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_optimizer(options: argparse.Namespace, model: nn.Module) -> Any:
    factor = 1 if options.use_adasum else hvd.size()
    if options.use_adasum and hvd.nccl_built():
        factor = hvd.local_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * factor, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
        gradient_predivide_factor=options.gradient_predivide_factor,
    )


def train_in_mixed_precision(model: nn.Module, optimizer: Any, scaler: Any, loader: DataLoader) -> None:
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(images)
        scaler.scale(cross_entropy(output.float(), labels)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()


def train(model: nn.Module, optimizer: Any, loader: DataLoader) -> None:
    for images, labels in loader:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()


def mean_over_ranks(value: Any, name: str) -> float:
    return hvd.allreduce(torch.as_tensor(value), name=name).item()


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    loss, right, count = 0.0, torch.tensor(0.0), 0
    with torch.no_grad():
        for images, labels in loader:
            output = model(images)
            loss += cross_entropy(output, labels, reduction="sum").item()
            right += (output.argmax(1) == labels).float().sum()
            count += len(labels)
    model.train()
    mean_loss = mean_over_ranks(loss / count, "avg_loss")
    accuracy = mean_over_ranks(right / count, "avg_accuracy")
    if hvd.rank() == 0:
        print(f"loss {mean_loss:.4f}, {100 * accuracy:.1f} % right")
    return accuracy


def main() -> None:
    options = read_options()
    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(42)
    torch.set_num_threads(1)
    train_data, test_data = digits()
    # The loader's own process is not forked from a rank, as Horovod asks for.
    workers = {"num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True}
    loader = my_part(train_data, 16, **workers)
    test_loader = my_part(test_data, 100)
    model = make_model()
    optimizer = make_optimizer(options, model)
    scaler = torch.amp.GradScaler("cpu") if options.use_mixed_precision else None
    accuracy = 0.0
    for epoch in range(options.epochs):
        loader.sampler.set_epoch(epoch)
        if scaler is None:
            train(model, optimizer, loader)
        else:
            train_in_mixed_precision(model, optimizer, scaler, loader)
        accuracy = evaluate(model, test_loader)
    print(f"rank {hvd.rank()} of {hvd.size()}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
