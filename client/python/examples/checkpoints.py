"""Rank 0 writes a checkpoint after each epoch; a later run goes on from it, on another number of
ranks if you like.

ringctl run -n 2 -- python checkpoints.py --checkpoint /tmp/digits.pt --epochs 2
ringctl run -n 4 -- python checkpoints.py --checkpoint /tmp/digits.pt --epochs 4
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import digits_data
import ringd.torch as hvd
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def save(path: Path, state: dict[str, Any]) -> None:
    """Whole or not at all: a run that is killed meanwhile leaves the last checkpoint as it was."""
    unfinished = path.with_name(path.name + ".unfinished")
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"))
    parser.add_argument("--epochs", type=int, default=4, help="in all, those of earlier runs included")
    parser.add_argument("--batch-size", type=int, default=48, help="over all ranks")
    args = parser.parse_args()

    hvd.init()
    if args.batch_size % hvd.size() != 0:
        raise SystemExit(f"--batch-size {args.batch_size} can't be divided among {hvd.size()} ranks")
    torch.manual_seed(1)
    train, test = digits_data.load()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    # The size over all ranks is fixed, so the steps are the same on any number of ranks, and so may
    # the learning rate be.
    loader = DataLoader(train, batch_size=args.batch_size // hvd.size(), sampler=sampler, drop_last=True)

    model = digits_data.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)

    # Rank 0 alone reads the file, which may lie on its node only; it gives the others what they
    # need.
    progress: dict[str, Any] = {"epochs": 0, "scheduler": scheduler.state_dict()}
    if hvd.rank() == 0 and args.checkpoint.exists():
        state = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        progress = state["progress"]
    progress = hvd.broadcast_object(progress, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    scheduler.load_state_dict(progress["scheduler"])

    first = progress["epochs"]
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks go on after epoch {first}", flush=True)
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        scheduler.step()
        if hvd.rank() == 0:
            # The same on all ranks, so one of them says it all.
            progress = {"epochs": epoch + 1, "scheduler": scheduler.state_dict()}
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "progress": progress}
            save(args.checkpoint, states)
            print(f"epoch {epoch + 1}: accuracy {digits_data.accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
