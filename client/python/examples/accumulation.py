"""Gradients of several micro-batches in one step, clipped, with a learning rate that warms up and
falls.

ringctl run -n 2 -- python accumulation.py
"""

from __future__ import annotations

import argparse

import digits_data
import ringd.torch as hvd
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--micro-batch-size", type=int, default=8, help="of each rank")
    parser.add_argument("--micro-batches", type=int, default=4, help="in a step")
    parser.add_argument("--largest-norm", type=float, default=1.0, help="of all gradients together")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    train, test = digits_data.load()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    loader = DataLoader(train, batch_size=args.micro_batch_size, sampler=sampler, drop_last=True)
    # An epoch's last micro-batches may be too few for a step: they are left out here.
    steps_in_epoch = len(loader) // args.micro_batches

    model = digits_data.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        # Gradients travel once in so many backward passes: with the last one.
        backward_passes_per_step=args.micro_batches,
    )
    # All ranks step alike, so their schedulers agree without a word.
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=args.epochs * steps_in_epoch
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    clipped = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for number, (images, labels) in enumerate(loader, 1):
            # Passes are summed; divided, they are averaged.
            (cross_entropy(model(images), labels) / args.micro_batches).backward()
            if number % args.micro_batches != 0:
                continue
            # What is clipped has to be the gradient of all ranks, so wait for it first ...
            optimizer.synchronize()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.largest_norm)
            clipped += int(norm > args.largest_norm)
            # ... and don't reduce it again.
            with optimizer.skip_synchronize():
                optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if hvd.rank() == 0:
            accuracy = digits_data.accuracy(model, test)
            rate = scheduler.get_last_lr()[0]
            print(
                f"epoch {epoch + 1}: accuracy {accuracy:.3f}, rate {rate:.5f}, {clipped} steps clipped",
                flush=True,
            )


if __name__ == "__main__":
    main()
