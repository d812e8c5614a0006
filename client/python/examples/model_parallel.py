"""Half of a network on each of two ranks, and a copy of the whole on every two: process sets for
model and data parallelism.

ringctl run -n 4 -- python model_parallel.py
"""

from __future__ import annotations

import argparse

import digits_data
import ringd.torch as hvd
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

HALVES = 2
HIDDEN = 128


class Half(nn.Module):
    """Half of the hidden units. The copy's two ranks add what their halves say of each digit."""

    def __init__(self, copy: hvd.ProcessSet) -> None:
        super().__init__()
        self.copy = copy
        self.inputs = nn.Linear(64, HIDDEN // HALVES)
        self.outputs = nn.Linear(HIDDEN // HALVES, 10, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.inputs(images.flatten(1)))
        return hvd.allreduce(self.outputs(hidden), op=hvd.Sum, name="scores", process_set=self.copy)


def make_sets() -> tuple[hvd.ProcessSet, int, hvd.ProcessSet]:
    """This rank's copy of the network, its number, and the ranks that have the same half.

    All ranks add all sets, in the same order.
    """
    first_ranks = range(0, hvd.size(), HALVES)
    copies = [hvd.add_process_set(range(first, first + HALVES)) for first in first_ranks]
    halves = [hvd.add_process_set(range(half, hvd.size(), HALVES)) for half in range(HALVES)]
    number = hvd.rank() // HALVES
    return copies[number], number, halves[hvd.rank() % HALVES]


def same_on_all(model: nn.Module, half: hvd.ProcessSet) -> bool:
    whole = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    least, most = (hvd.allreduce(whole, op=op, process_set=half) for op in (hvd.Min, hvd.Max))
    return torch.equal(least, most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=24, help="of each copy of the network")
    args = parser.parse_args()

    hvd.init()
    if hvd.size() < 2 * HALVES or hvd.size() % HALVES != 0:
        raise SystemExit(f"start it with 4, 6, 8 ... ranks, not {hvd.size()}")
    torch.manual_seed(hvd.rank())
    copy, number, half = make_sets()
    model = Half(copy)
    # Both halves of a copy see the same images, each copy others.
    train, test = digits_data.load()
    sampler = DistributedSampler(train, num_replicas=hvd.size() // HALVES, rank=number, seed=1)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=2e-3),
        named_parameters=model.named_parameters(),
        process_set=half,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=half.ranks[0], process_set=half)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            # Both ranks of a copy compute this loss, and the backward pass through the sum of their
            # scores adds up what both send back. So each sends its part.
            loss = cross_entropy(model(images), labels) / copy.size()
            loss.backward()
            optimizer.step()
        # All ranks: a half alone can say nothing.
        accuracy = digits_data.accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}", flush=True)
    same = hvd.allreduce(torch.tensor(same_on_all(model, half)), op=hvd.Min)
    if hvd.rank() == 0:
        says = "both halves are the same" if same else "the halves differ"
        print(f"{says} in all {hvd.size() // HALVES} copies", flush=True)


if __name__ == "__main__":
    main()
