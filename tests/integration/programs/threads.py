"""Rank program: several threads submit, poll and wait at once."""

from __future__ import annotations

import threading

import ringd.torch as hvd
import torch

THREADS = 6
STEPS = 30


def work(thread: int, failures: list[str]) -> None:
    try:
        for step in range(STEPS):
            tensor = torch.full((100 * thread + 1,), float(thread + step + hvd.rank()))
            handle = hvd.allreduce_async(tensor, op=hvd.Sum, name=f"thread {thread}, {step % 3}")
            if step % 2:
                hvd.poll(handle)
            total = float(sum(thread + step + rank for rank in range(hvd.size())))
            result = hvd.synchronize(handle)
            assert torch.equal(result, torch.full_like(tensor, total)), f"{result[0]} instead of {total}"
    except Exception as error:
        failures.append(f"thread {thread}: {error!r}")


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    failures: list[str] = []
    threads = [threading.Thread(target=work, args=(index, failures)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures

    # One handle, waited for by two threads.
    handle = hvd.allreduce_async(torch.ones(5), op=hvd.Sum, name="shared")
    results: list[torch.Tensor] = []
    waiters = [threading.Thread(target=lambda: results.append(hvd.synchronize(handle))) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join()
    assert [result.tolist() for result in results] == [[float(hvd.size())] * 5] * 2
    print("all is well")


main()
