"""All-reduces on behalf of the benchmark, through Horovod where it is installed.

Started once per rank with Horovod's own environment (HOROVOD_RANK and friends, set by the harness
for its Gloo controller) as `horovod_driver.py FOLDER`.
"""

from __future__ import annotations

import os
import sys
import time

from control import Channel, Work, await_common_start, contribution, pin_to_core, sleep_until

RANK = int(os.environ["HOROVOD_RANK"])
pin_to_core(RANK)

import horovod  # noqa: E402  (the threads that it starts inherit the affinity)
import horovod.torch as hvd  # noqa: E402
import torch  # noqa: E402

DTYPES = {"f32": torch.float32, "f16": torch.float16}


def await_ready(work: Work, start: float, index: int) -> None:
    if work.ready:
        sleep_until(start + work.ready[index])


def run_once(work: Work, tensors: list[torch.Tensor]) -> None:
    start = time.perf_counter()
    if work.mode == "blocking":
        for index, tensor in enumerate(tensors):
            await_ready(work, start, index)
            hvd.allreduce_(tensor, op=hvd.Sum, name=f"t{index}")
        return
    pending = []
    for index, tensor in enumerate(tensors):
        await_ready(work, start, index)
        pending.append(hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"t{index}"))
    for handle in pending:
        hvd.synchronize(handle)


def sums_are_right(work: Work, tensors: list[torch.Tensor]) -> bool:
    """One checked call; leaves zeros behind."""
    for tensor in tensors:
        tensor[0::2] = contribution(RANK, 0)
        tensor[1::2] = contribution(RANK, 1)
    run_once(work, tensors)
    right = torch.ones(1)
    for tensor in tensors:
        for parity in (0, 1):
            expected = sum(contribution(rank, parity) for rank in range(hvd.size()))
            if not bool((tensor[parity::2] == expected).all()):
                right.zero_()
        tensor.zero_()
    return bool((hvd.allreduce(right, op=hvd.Sum, name="check") == hvd.size()).item())


def serve(work: Work, channel: Channel) -> None:
    # Horovod fuses by itself: packing by the caller would be the caller's cost only.
    if work.dtype not in DTYPES or work.memory != "ordinary" or work.mode in ("null", "bucket"):
        channel.problem(work, "unsupported", "no such data type, memory or mode")
        return
    tensors = [torch.zeros(count, dtype=DTYPES[work.dtype]) for count in work.counts]
    if work.verify and not sums_are_right(work, tensors):
        channel.problem(work, "error", "wrong sum")
        return
    seconds: list[float] = []
    for sample in range(-work.warmup, work.samples):
        hvd.barrier()
        await_common_start(work)
        start = time.perf_counter()
        for _ in range(work.inner):
            run_once(work, tensors)
        if sample >= 0:
            seconds.append((time.perf_counter() - start) / work.inner)
    channel.seconds(work, seconds)


def main() -> int:
    torch.set_num_threads(1)
    hvd.init()
    channel = Channel(sys.argv[1], RANK)
    channel.ready(f"horovod {horovod.__version__}")
    for work in channel.works():
        serve(work, channel)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
