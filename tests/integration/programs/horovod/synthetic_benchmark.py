"""A program for Horovod that makes each of its calls which the published synthetic benchmark makes.

The optimizer is wrapped before parameters and state are broadcast; steps on one batch are timed by
timeit; rank 0 speaks.
"""

from __future__ import annotations

import argparse
import statistics
import timeit

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

STEPS = 5
ROUNDS = 3
IMAGES = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    factor = 1 if options.use_adasum else hvd.size()
    if options.use_adasum and hvd.nccl_built():
        factor = hvd.local_size()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01 * factor),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    digits = load_digits()
    images = torch.tensor(digits.images[:IMAGES], dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target[:IMAGES])

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    timeit.timeit(step, number=STEPS)
    rates = [IMAGES * STEPS / timeit.timeit(step, number=STEPS) for _ in range(ROUNDS)]
    if hvd.rank() == 0:
        for number, rate in enumerate(rates):
            print(f"round {number}: {rate:.1f} images/s on each rank")
        print(f"in all {hvd.size() * statistics.mean(rates):.1f} images/s on {hvd.size()} ranks")


if __name__ == "__main__":
    main()
