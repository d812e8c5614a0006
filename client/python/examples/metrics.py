"""Averages over all ranks: the loss while training, the accuracy of a test set that the ranks share
out.

ringctl run -n 2 -- python metrics.py
"""

from __future__ import annotations

import argparse

import digits_data
import ringd.torch as hvd
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler


class Average:
    """A mean over all that all ranks have added, also if they have added unequally much."""

    def __init__(self, name: str) -> None:
        # Give a name: ringd learns what comes again under the same one.
        self._name = name
        self._sum_and_count = torch.zeros(2, dtype=torch.float64)

    def add(self, total: float, count: int) -> None:
        """Costs no communication."""
        self._sum_and_count += torch.tensor([total, count], dtype=torch.float64)

    def over_all_ranks(self) -> float:
        """To be called by all ranks; then it begins again."""
        # A sum of sums and of counts, not an average of averages: the parts may be unequal.
        total, count = hvd.allreduce(self._sum_and_count, name=self._name, op=hvd.Sum).tolist()
        self._sum_and_count.zero_()
        return total / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    train, test = digits_data.load()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    train_loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    # A DistributedSampler would repeat images until the parts are equal, and count those twice.
    # Evaluation needs no equal parts: nothing is reduced before its end.
    mine = Subset(test, range(hvd.rank(), len(test), hvd.size()))
    test_loader = DataLoader(mine, batch_size=64)

    model = digits_data.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    loss_average, accuracy_average = Average("loss"), Average("accuracy")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            loss_average.add(loss.item() * len(labels), len(labels))
        model.eval()
        with torch.no_grad():
            for images, labels in test_loader:
                right = (model(images).argmax(dim=1) == labels).sum()
                accuracy_average.add(right.item(), len(labels))
        model.train()
        mean_loss, accuracy = loss_average.over_all_ranks(), accuracy_average.over_all_ranks()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean_loss:.4f}, accuracy {accuracy:.6f}", flush=True)
    if hvd.rank() == 0:
        # The whole test set on one rank gives the same.
        print(f"rank 0 alone: accuracy {digits_data.accuracy(model, test):.6f}", flush=True)


if __name__ == "__main__":
    main()
