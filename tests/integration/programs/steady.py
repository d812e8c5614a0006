"""Some layers' gradients, step after step, each ready a little after the one before.

steady.py STEPS
"""

import sys
import time

import ringd.torch as hvd
import torch

hvd.init()
sizes = [4_000, 40_000, 1_000, 200_000, 90_000, 500, 64_000, 120_000]
gradients = [torch.full((size,), float(hvd.rank() + 1)) for size in sizes]
expected = sum(range(1, hvd.size() + 1)) / hvd.size()
for step in range(int(sys.argv[1])):
    handles = []
    for layer, gradient in enumerate(gradients):
        handles.append(hvd.allreduce_async(gradient, name=f"layer{layer}"))
        time.sleep(0.0005)
    for handle in handles:
        result = hvd.synchronize(handle)
        assert torch.allclose(result, torch.full_like(result, expected)), (step, result)
    if step == 20:
        print("under way", flush=True)
    time.sleep(0.002)
print("all is well", flush=True)
hvd.shutdown()
