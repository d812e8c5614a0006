"""Rank program: a process joins, leaves and joins again."""

from __future__ import annotations

import ringd
import ringd.torch as hvd
import torch


def main() -> None:
    torch.set_num_threads(1)
    assert not hvd.is_initialized()
    kept = []
    for round_number in range(4):
        hvd.init()
        hvd.init()  # does nothing
        assert hvd.is_initialized()
        place = (hvd.rank(), hvd.size())
        tensor = hvd.empty(1000)
        tensor.fill_(float(round_number))
        hvd.allreduce_(tensor, op=hvd.Sum, name="tensor")
        kept.append(tensor)
        if round_number % 2:
            hvd.barrier()
        hvd.shutdown()
        hvd.shutdown()  # does nothing
        assert not hvd.is_initialized()
        try:
            hvd.rank()
        except ringd.FailedPreconditionError as error:
            assert "init()" in str(error)
        else:
            raise AssertionError("rank() without init()")
        # Arena tensors outlive their job.
        for value, old in enumerate(kept):
            assert torch.equal(old, torch.full((1000,), float(value * place[1]))), value
    print("all is well")


main()
