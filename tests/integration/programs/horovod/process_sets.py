"""A program for Horovod that uses process sets in each way that its documentation shows.

Static sets given to init, or dynamic ones added later; printing them; allreduce,
grouped_allreduce, broadcast, broadcast_object and barrier on them; a DistributedOptimizer for each
rank's set; one set removed at the end.
"""

from __future__ import annotations

import argparse

import horovod.torch as hvd
import torch
from torch import nn

STEPS = 20


def train(process_set: hvd.ProcessSet) -> tuple[float, float]:
    """The members' models move to the mean of what their ranks ask for."""
    torch.manual_seed(hvd.rank())
    model = nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=process_set.ranks[0], process_set=process_set)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), process_set=process_set
    )
    inputs, target = torch.ones(1, 4), torch.full((1, 1), 1.0 + hvd.rank())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(inputs) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(hvd.allreduce(loss.detach(), name="loss", process_set=process_set)))
    return losses[0], losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dynamic", action="store_true")
    args = parser.parse_args()
    if args.dynamic:
        hvd.init(process_sets="dynamic")
        even_set, odd_set = hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])
    else:
        even_set, odd_set = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])
        hvd.init(process_sets=[even_set, odd_set])
    rank = hvd.rank()
    for process_set in [hvd.global_process_set, even_set, odd_set]:
        print(f"rank {rank}: {process_set}", flush=True)
    mine, others = (even_set, odd_set) if even_set.included() else (odd_set, even_set)
    assert mine.size() == others.size() == 2
    assert mine.ranks[mine.rank()] == rank

    total = hvd.allreduce(torch.tensor([rank + 1.0]), op=hvd.Sum, process_set=mine)
    assert total.item() == sum(member + 1 for member in mine.ranks)
    pair = hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], op=hvd.Sum, process_set=mine)
    assert [tensor.sum().item() for tensor in pair] == [4.0, 6.0]
    first = mine.ranks[0]
    assert hvd.broadcast(torch.tensor([rank]), root_rank=first, process_set=mine).item() == first
    assert hvd.broadcast_object({"rank": rank}, root_rank=first, process_set=mine) == {"rank": first}
    hvd.barrier(mine)
    try:
        hvd.allreduce(torch.ones(1), process_set=others)
    except Exception as error:
        assert "process set" in str(error), error
    else:
        raise AssertionError("this rank is not in that set")

    before, after = train(mine)
    assert after < before
    print(f"rank {rank}: loss {before:.4f} became {after:.4f}", flush=True)
    if args.dynamic:
        assert hvd.remove_process_set(odd_set)
        assert odd_set.process_set_id is None
    hvd.shutdown()


if __name__ == "__main__":
    main()
