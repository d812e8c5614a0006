"""Train a small convolutional network on scikit-learn's handwritten digits, data-parallel with
ringd.

Start it with one process per rank, for instance

    ringctl run --nodes 2 -n 2 -- python train_digits.py

Every rank works on its own part of each batch; ``DistributedOptimizer`` averages the gradients. At
the end rank 0 repeats the training alone on the whole batches and compares every parameter: the
exit status is 1 if any differs by ``--tolerance`` or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ringd.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

TEST_IMAGES = 357


@dataclass
class Digits:
    """Images [n, 1, 8, 8] in 0..1 and labels [n], split the same way in every process."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def choose_device(kind: str) -> torch.device:
    """This rank's: on a GPU that of its local rank, computing as exactly as a processor does."""
    if kind == "cpu":
        return torch.device("cpu")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    device = torch.device("cuda", hvd.local_rank())
    torch.cuda.set_device(device)
    return device


def load_data(seed: int, device: torch.device) -> Digits:
    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32, device=device).unsqueeze(1) / 16.0
    labels = torch.tensor(raw.target, dtype=torch.int64, device=device)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Digits(images[train], labels[train], images[test], labels[test])


def make_model(seed: int, device: torch.device) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.Tanh(),
        nn.Linear(128, 10),
    )
    return model.to(device)


def make_optimizer(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)


def batches(data: Digits, epoch: int, batch_size: int, seed: int) -> list[torch.Tensor]:
    """The indices of each whole batch of an epoch: the same in every process."""
    generator = torch.Generator().manual_seed(seed * 1000 + epoch)
    order = torch.randperm(len(data.train_labels), generator=generator)
    whole = len(order) // batch_size * batch_size
    return list(order[:whole].split(batch_size))


def accuracy(model: nn.Module, data: Digits) -> float:
    with torch.no_grad():
        predicted = model(data.test_images).argmax(dim=1)
    return float((predicted == data.test_labels).float().mean())


@dataclass
class Report:
    """What the training showed; ``deploy/quickstart`` prints it."""

    ranks: int = 0
    nodes: int = 0
    epochs: int = 0
    steps: int = 0
    accuracy: float = 0.0
    images_per_second: float = 0.0
    communication_share: float = 0.0
    largest_difference: float = 0.0
    tolerance: float = 0.0
    # What ringd on rank 0's node said: the table half-way, and the last counters.
    communicators: str = ""
    counters: dict[str, Any] = field(default_factory=dict)


def train_distributed(args: argparse.Namespace, data: Digits, report: Report) -> nn.Module:
    model = make_model(args.seed, data.train_images.device)
    optimizer = make_optimizer(model, args.learning_rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    share = args.batch_size // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    waited = 0.0
    images = 0
    began = time.monotonic()
    for epoch in range(args.epochs):
        loss = torch.zeros(())
        for batch in batches(data, epoch, args.batch_size, args.seed):
            part = batch[mine]
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(data.train_images[part]), data.train_labels[part])
            loss.backward()
            before = time.monotonic()
            optimizer.synchronize()
            waited += time.monotonic() - before
            with optimizer.skip_synchronize():
                optimizer.step()
            images += len(batch)
            report.steps += 1
        mean_loss = hvd.allreduce(loss.detach(), name="loss")
        if epoch == args.epochs // 2 and hvd.rank() == 0:
            report.communicators = ringctl("comms")
        if hvd.rank() == 0:
            rate = images / (time.monotonic() - began)
            print(
                f"epoch {epoch + 1:2d}/{args.epochs}  loss {float(mean_loss):.4f}  "
                f"accuracy {accuracy(model, data):.3f}  {rate:,.0f} images/s",
                flush=True,
            )
    elapsed = time.monotonic() - began
    if hvd.rank() == 0:
        report.counters = last_counters()
    report.images_per_second = images / elapsed
    report.communication_share = waited / elapsed
    return model


def ringctl(*arguments: str) -> str:
    """What ``ringctl`` prints; empty if there is no ringctl on PATH."""
    try:
        done = subprocess.run(
            ["ringctl", *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def last_counters() -> dict[str, Any]:
    communicators = json.loads(ringctl("comms", "--json") or "{}").get("communicators", [])
    return dict(communicators[0]) if communicators else {}


def train_alone(args: argparse.Namespace, data: Digits) -> nn.Module:
    model = make_model(args.seed, data.train_images.device)
    optimizer = make_optimizer(model, args.learning_rate)
    for epoch in range(args.epochs):
        for batch in batches(data, epoch, args.batch_size, args.seed):
            optimizer.zero_grad()
            images, labels = data.train_images[batch], data.train_labels[batch]
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    return model


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=120, help="over all ranks")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: a GPU for each rank")
    parser.add_argument("--report", type=Path, help="write what rank 0 measured to this JSON file")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    torch.set_num_threads(1)
    hvd.init()
    if args.batch_size % hvd.size() != 0:
        print(f"--batch-size must be a multiple of the {hvd.size()} ranks", file=sys.stderr)
        return 2
    data = load_data(args.seed, choose_device(args.device))
    report = Report(ranks=hvd.size(), nodes=hvd.cross_size(), epochs=args.epochs, tolerance=args.tolerance)
    model = train_distributed(args, data, report)
    rank = hvd.rank()
    hvd.shutdown()
    if rank != 0:
        return 0
    report.accuracy = accuracy(model, data)
    report.largest_difference = largest_difference(model, train_alone(args, data))
    if args.report is not None:
        args.report.write_text(json.dumps(asdict(report), indent=1) + "\n")
    verdict = "ok" if report.largest_difference < args.tolerance else "TOO LARGE"
    print(
        f"accuracy on {TEST_IMAGES} held-out images: {report.accuracy:.3f}; largest difference of a "
        f"parameter from training alone: {report.largest_difference:.2e} ({verdict})",
        flush=True,
    )
    return 0 if report.largest_difference < args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
