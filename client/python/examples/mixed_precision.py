"""bfloat16 where it suffices: in the forward and backward pass, and on the way between the ranks.

ringctl run -n 2 -- python mixed_precision.py
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
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    train, test = digits_data.load()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    # Parameters and optimizer state stay in float32.
    model = digits_data.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        # Gradients take half of the bytes on the way. Leave it out where the line is fast enough.
        compression=hvd.Compression.bf16,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(images)
            cross_entropy(output.float(), labels).backward()
            # bfloat16 has float32's range, so nothing has to be scaled. With float16 and a
            # GradScaler:
            #   scaler.scale(loss).backward()
            #   optimizer.synchronize()
            #   scaler.unscale_(optimizer)
            #   with optimizer.skip_synchronize():
            #       scaler.step(optimizer)
            #   scaler.update()
            optimizer.step()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {digits_data.accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
