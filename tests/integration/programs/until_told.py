"""Some layers' gradients, step after step, each ready a little after the one before, until told to end.

until_told.py NOTES MIB: the folder of this job's notes, and what all gradients together hold. Each rank's note `steps<rank>`
grows by a byte with each step; all end in the same step once there is the note `end`.
"""

import sys
import time
from pathlib import Path

import ringd.torch as hvd
import torch

PATIENCE_S = 120.0
# Of all gradients, as in the program steady.
SHARES = [4_000, 40_000, 1_000, 200_000, 90_000, 500, 64_000, 120_000]

hvd.init()
notes = Path(sys.argv[1])
elements = float(sys.argv[2]) * 2**20 / 4
sizes = [max(1, int(elements * share / sum(SHARES))) for share in SHARES]
gradients = [torch.full((size,), float(hvd.rank() + 1)) for size in sizes]
expected = sum(range(1, hvd.size() + 1)) / hvd.size()
end = torch.zeros(1)
deadline = time.monotonic() + PATIENCE_S
with (notes / f"steps{hvd.rank()}").open("wb", buffering=0) as steps:
    while True:
        assert time.monotonic() < deadline, "nobody says that this is the end"
        end.fill_(float((notes / "end").exists()))
        handles = [hvd.allreduce_async(end, name="end")]
        for layer, gradient in enumerate(gradients):
            handles.append(hvd.allreduce_async(gradient, name=f"layer{layer}"))
            time.sleep(0.0005)
        is_end = bool(hvd.synchronize(handles[0]))
        for handle in handles[1:]:
            result = hvd.synchronize(handle)
            assert torch.allclose(result, torch.full_like(result, expected)), result
        if is_end:
            break
        steps.write(b".")
        time.sleep(0.002)
print("all is well", flush=True)
hvd.shutdown()
