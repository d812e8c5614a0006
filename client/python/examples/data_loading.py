"""Each rank trains on its own part of the data: DistributedSampler and DataLoader.

ringctl run -n 2 -- python data_loading.py
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
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="of one rank alone")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    train, test = digits_data.load()

    # The sampler deals the images out: every rank gets equally many, and no two ranks the same one.
    # (It repeats a few if they can't be divided.) All ranks must do equally many steps: an
    # all-reduce waits for everybody.
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, num_workers=1, drop_last=True)

    model = digits_data.make_model()
    # `size` ranks see `size` times as many images in a step, so steps may be longer.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(args.epochs):
        # Without this line every epoch has the same order.
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {digits_data.accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
