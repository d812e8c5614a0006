"""hvd.SyncBatchNorm against torch.nn.BatchNorm on the batches of all ranks together."""

from __future__ import annotations

import copy
from typing import Any

import ringd.torch as hvd
import torch

hvd.init()
torch.set_num_threads(1)
RANK, SIZE = hvd.rank(), hvd.size()
REFERENCE = {
    2: torch.nn.BatchNorm1d,
    3: torch.nn.BatchNorm1d,
    4: torch.nn.BatchNorm2d,
    5: torch.nn.BatchNorm3d,
}
CHANNELS = 3


def batches(sizes: list[int], tail: tuple[int, ...], dtype: torch.dtype, step: int) -> list[torch.Tensor]:
    """One for each rank, the same everywhere; far from mean 0 and variance 1."""
    torch.manual_seed(17 + step)
    return [(torch.randn(size, CHANNELS, *tail) * 5 + 30).to(dtype) for size in sizes]


def close(ours: torch.Tensor, theirs: torch.Tensor, what: str, tolerance: float) -> None:
    torch.testing.assert_close(
        ours.double(), theirs.double(), rtol=tolerance, atol=tolerance, msg=lambda text: f"{what}: {text}"
    )


def check(
    sizes: list[int],
    tail: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    tolerance: float = 2e-5,
    **settings: Any,
) -> None:
    torch.manual_seed(3)
    reference = REFERENCE[2 + len(tail)](CHANNELS, **settings)
    ours = hvd.SyncBatchNorm(CHANNELS, **settings)
    if reference.affine:
        with torch.no_grad():
            reference.weight.uniform_(0.5, 2)
            reference.bias.uniform_(-1, 1)
    ours.load_state_dict(reference.state_dict())
    if dtype == torch.float64:
        reference, ours = reference.double(), ours.double()
    for step in range(3):
        parts = batches(sizes, tail, dtype, step)
        # Half precision is compared with what float32 makes of the same numbers.
        whole = torch.cat(parts).to(torch.float64 if dtype == torch.float64 else torch.float32)
        whole.requires_grad_()
        own = parts[RANK].requires_grad_()
        weights = torch.linspace(-1, 1, whole.numel(), dtype=whole.dtype).view(whole.shape)
        begin = sum(sizes[:RANK])
        mine = slice(begin, begin + sizes[RANK])
        for module in (ours, reference):
            module.zero_grad()
        expected = reference(whole)
        (expected.sin() * weights).sum().backward()
        output = ours(own)
        assert output.dtype == dtype
        (output.to(whole.dtype).sin() * weights[mine]).sum().backward()
        close(output, expected[mine], "output", tolerance)
        close(own.grad, whole.grad[mine], "gradient of the input", tolerance)
        if reference.affine:
            for name in ("weight", "bias"):
                total = hvd.allreduce(getattr(ours, name).grad, op=hvd.Sum, name=f"check.{name}")
                close(total, getattr(reference, name).grad, f"gradient of {name}", 20 * tolerance)
    for (name, buffer), theirs in zip(ours.named_buffers(), reference.buffers(), strict=True):
        close(buffer, theirs, name, tolerance)
    ours.eval()
    reference.eval()
    # Alone: in evaluation nobody waits for anybody.
    if RANK == 0:
        close(ours(parts[0]), reference(parts[0].to(whole.dtype)), "evaluation", tolerance)


even, uneven = [4] * SIZE, [2 * rank + 1 for rank in range(SIZE)]
for sizes in (even, uneven, [0] + [5] * (SIZE - 1), [5] * (SIZE - 1) + [0], [1] * SIZE):
    check(sizes, (6, 5))
for tail in ((), (7,), (3, 2, 4)):
    check(uneven, tail)
check(uneven, (6, 5), momentum=None)
check(uneven, (6, 5), affine=False)
check(uneven, (6, 5), track_running_stats=False)
check(uneven, (6, 5), dtype=torch.float64, tolerance=1e-10)
check(uneven, (6, 5), dtype=torch.bfloat16, tolerance=3e-2)

# Either may be missing, or frozen.
for missing in ("weight", "bias"):
    for frozen in (False, True):
        part = hvd.SyncBatchNorm(CHANNELS)
        if frozen:
            getattr(part, missing).requires_grad_(False)
        else:
            setattr(part, missing, None)
        (data,) = batches([4 + RANK], (), torch.float32, 0)
        (part(data.requires_grad_()) * data.detach()).sum().backward()
        other = part.bias if missing == "weight" else part.weight
        assert data.grad is not None
        assert other.grad is not None

# A copy is a module of its own; both may be used in one step. Inputs may need no gradient.
first = hvd.SyncBatchNorm(CHANNELS)
second = copy.deepcopy(first)
(data,) = batches([4 + RANK], (), torch.float32, 0)
loss = (first(data) * second(data + RANK)).sum()
loss.backward()
assert first.weight.grad is not None
assert second.weight.grad is not None

try:
    hvd.SyncBatchNorm(CHANNELS)(data[:, :2])
except ValueError as error:
    assert "shape (N, 3, ...)" in str(error), error
else:
    raise AssertionError("two channels in place of three")
try:
    hvd.SyncBatchNorm(CHANNELS)(data[: 1 if RANK == 0 else 0])
except ValueError as error:
    assert "all ranks together have 1" in str(error), error
else:
    raise AssertionError("one value of a channel")
# The job has a new place for each module after init.
hvd.shutdown()
hvd.init(job_id="another")
first(data)
hvd.shutdown()
print("all is well")
