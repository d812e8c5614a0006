"""Some layers' gradients, step after step, each ready a little after the one before, until told to
end.

until_told.py NOTES MIB MS: the folder of this job's notes, what the gradients hold together, and
the time from one to the next. Each rank's note `steps<rank>` grows by a byte with each step; all
end in the same step once there is the note `end`.
"""

import sys
import time
from pathlib import Path

import ringd.torch as hvd
import torch

PATIENCE_S = 120.0
LAYERS = 8

hvd.init()
notes = Path(sys.argv[1])
elements = int(float(sys.argv[2]) * 2**20 / 4 / LAYERS)
between_s = float(sys.argv[3]) / 1000
gradients = [torch.full((elements,), float(hvd.rank() + 1)) for _ in range(LAYERS)]
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
            time.sleep(between_s)
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
