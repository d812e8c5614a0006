"""All-reduces on behalf of the benchmark, through torch.distributed's gloo backend.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as
`torch_driver.py FOLDER`.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

from control import (
    Channel,
    Work,
    await_common_start,
    contribution,
    pin_to_core,
    plan_buckets,
    sleep_until,
)

RANK = int(os.environ["RANK"])
pin_to_core(RANK)

import torch  # noqa: E402  (the threads that it starts inherit the affinity)
import torch.distributed as dist  # noqa: E402

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Buffers:
    """The tensors of one list, kept while the work stays the same."""

    def __init__(self) -> None:
        self._key: object = None
        self.tensors: list[torch.Tensor] = []
        self.buckets: list[torch.Tensor] = []
        self.views: list[list[torch.Tensor]] = []
        self.ranges: list[tuple[int, int]] = []

    def prepare(self, work: Work) -> None:
        key = (tuple(work.counts), work.dtype, work.mode == "bucket", work.bucket_bytes)
        if key == self._key:
            return
        self._key = key
        dtype = DTYPES[work.dtype]
        self.tensors = [torch.zeros(count, dtype=dtype) for count in work.counts]
        self.ranges, self.buckets, self.views = [], [], []
        if work.mode != "bucket":
            return
        self.ranges = plan_buckets(work.counts, dtype.itemsize, work.bucket_bytes)
        for first, end in self.ranges:
            bucket = torch.zeros(sum(work.counts[first:end]), dtype=dtype)
            self.buckets.append(bucket)
            self.views.append(list(bucket.split(work.counts[first:end])))


def await_ready(work: Work, start: float, index: int) -> None:
    """Sleeps until tensor `index` exists; gloo's threads go on meanwhile."""
    if work.ready:
        sleep_until(start + work.ready[index])


def run_buckets(work: Work, buffers: Buffers, start: float) -> None:
    pending = []
    for bucket, views, (first, end) in zip(buffers.buckets, buffers.views, buffers.ranges, strict=True):
        await_ready(work, start, end - 1)
        torch._foreach_copy_(views, buffers.tensors[first:end])
        pending.append(dist.all_reduce(bucket, async_op=True))
    for handle, views, (first, end) in zip(pending, buffers.views, buffers.ranges, strict=True):
        handle.wait()
        torch._foreach_copy_(buffers.tensors[first:end], views)


def run_once(work: Work, buffers: Buffers) -> None:
    start = time.perf_counter()
    if work.mode == "bucket":
        run_buckets(work, buffers, start)
    elif work.mode == "blocking":
        for index, tensor in enumerate(buffers.tensors):
            await_ready(work, start, index)
            dist.all_reduce(tensor)
    else:
        pending = []
        for index, tensor in enumerate(buffers.tensors):
            await_ready(work, start, index)
            pending.append(dist.all_reduce(tensor, async_op=True))
        for handle in pending:
            handle.wait()


def sums_are_right(work: Work, buffers: Buffers) -> bool:
    """One checked call; leaves zeros behind."""
    for tensor in buffers.tensors:
        tensor[0::2] = contribution(RANK, 0)
        tensor[1::2] = contribution(RANK, 1)
    run_once(work, buffers)
    ranks = range(dist.get_world_size())
    right = torch.ones(1)
    for tensor in buffers.tensors:
        for parity in (0, 1):
            expected = sum(contribution(rank, parity) for rank in ranks)
            if not bool((tensor[parity::2] == expected).all()):
                right.zero_()
        tensor.zero_()
    dist.all_reduce(right, op=dist.ReduceOp.MIN)
    return bool(right.item())


def serve(work: Work, buffers: Buffers, channel: Channel) -> None:
    if work.dtype not in DTYPES or work.memory != "ordinary" or work.mode == "null":
        channel.problem(work, "unsupported", "no such data type, memory or mode")
        return
    buffers.prepare(work)
    if work.verify and not sums_are_right(work, buffers):
        channel.problem(work, "error", "wrong sum")
        return
    seconds: list[float] = []
    for sample in range(-work.warmup, work.samples):
        dist.barrier()
        await_common_start(work)
        start = time.perf_counter()
        for _ in range(work.inner):
            run_once(work, buffers)
        if sample >= 0:
            seconds.append((time.perf_counter() - start) / work.inner)
    channel.seconds(work, seconds)


def main() -> int:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="env://",
        rank=RANK,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=600),
    )
    channel = Channel(sys.argv[1], RANK)
    channel.ready(f"torch {torch.__version__} gloo")
    buffers = Buffers()
    for work in channel.works():
        serve(work, buffers, channel)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
