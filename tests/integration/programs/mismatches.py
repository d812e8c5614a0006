"""Rank program: ranks that disagree are told so, all of them, and can go on."""

from __future__ import annotations

from collections.abc import Callable

import ringd
import ringd.torch as hvd
import torch


def expect_refused(call: Callable[[], object], *words: str) -> None:
    try:
        call()
    except ringd.InvalidArgumentError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"the message lacks {missing}: {error}"
    else:
        raise AssertionError(f"ranks that disagree were served (expected {words})")


def expect_usable() -> None:
    result = hvd.allreduce(torch.ones(4), op=hvd.Sum, name="afterwards")
    assert result.tolist() == [float(hvd.size())] * 4


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    odd = hvd.rank() == hvd.size() - 1
    shape = (3, 5) if odd else (3, 4)
    expect_refused(lambda: hvd.allreduce(torch.ones(shape), name="shape"), "shape", "[3, 4]", "[3, 5]")
    expect_usable()
    dtype = torch.float64 if odd else torch.float32
    expect_refused(
        lambda: hvd.allreduce(torch.ones(3, dtype=dtype), name="type"), "type", "float32", "float64"
    )
    expect_usable()
    op = hvd.Sum if odd else hvd.Average
    expect_refused(lambda: hvd.allreduce(torch.ones(3), name="op", op=op), "op", "sum", "average")
    expect_usable()
    root = 1 if odd else 0
    expect_refused(lambda: hvd.broadcast(torch.ones(3), root, name="root"), "root")
    expect_usable()
    # In a group only the tensor concerned fails, and the others are not left behind.
    tensors = [torch.ones(2), torch.ones(shape), torch.ones(5)]
    expect_refused(lambda: hvd.grouped_allreduce(tensors, name="group"), "group")
    expect_usable()
    # The name may be used again, rightly.
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="type").tolist() == [float(hvd.size())] * 3
    expect_usable()
    print("all is well")


main()
