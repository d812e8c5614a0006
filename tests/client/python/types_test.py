"""What a type checker, and so an editor, knows of programs that use ringd.torch.

mypy follows PyTorch's own types here, as a user's does; the lint's mypy does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Each line with a comment must get this type, or this error.
PROGRAM = """
from typing import reveal_type

import ringd
import ringd.torch as hvd
import torch


class Own(torch.optim.Optimizer):
    def extra(self) -> int:
        return 1


def from_elsewhere() -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


model = torch.nn.Linear(2, 2)
tensor = torch.ones(1)
reveal_type(hvd.init(start_timeout=30))  # None
hvd.init(start_timeout="x")  # error: incompatible type "str"; expected "float | None"
hvd.init(job=3)  # error: Unexpected keyword argument "job"

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
reveal_type(optimizer)  # ringd.torch.optimizer_types.SGD
still_sgd: torch.optim.SGD = optimizer
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
reveal_type(optimizer.synchronize())  # None
with optimizer.skip_synchronize():
    optimizer.step()
optimizer.zero_grad()
optimizer.synchronise()  # error: "SGD" has no attribute "synchronise"

adam_w = hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters()), model.named_parameters())
reveal_type(adam_w)  # ringd.torch.optimizer_types.AdamW
other = hvd.DistributedOptimizer(from_elsewhere(), backward_passes_per_step=2)
other.synchronize()
still_optimizer: torch.optim.Optimizer = other
own = hvd.DistributedOptimizer(Own(model.parameters(), {}), None, hvd.Compression.fp16, 2)
own.synchronize()
own.extra()
in_a_set = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters()), process_set=hvd.global_process_set)
reveal_type(in_a_set)  # ringd.torch.optimizer_types.SGD
hvd.DistributedOptimizer(optimizer, compresion=None)  # error: Unexpected keyword argument "compresion"
hvd.DistributedOptimizer(model)  # error: matches argument type "Linear"

reveal_type(hvd.synchronize(hvd.allreduce_async(tensor)))  # torch._tensor.Tensor
reveal_type(hvd.synchronize(hvd.grouped_allreduce_async([tensor])))  # list[torch._tensor.Tensor]
reveal_type(hvd.synchronize(hvd.broadcast_async_(tensor, 0)))  # torch._tensor.Tensor
reveal_type(hvd.allreduce(tensor, name="loss"))  # torch._tensor.Tensor
reveal_type(hvd.rank())  # int
pair = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[pair])
hvd.init(process_sets="static")  # error: incompatible type "Literal['static']"
reveal_type(hvd.add_process_set([0, 2]))  # ringd.torch.process_set.ProcessSet
reveal_type(pair.process_set_id)  # int | None
reveal_type(hvd.global_process_set.size())  # int
hvd.allreduce(tensor, process_set=pair)
hvd.allreduce(tensor, process_set=[0, 1])  # error: incompatible type "list[int]"; expected "ProcessSet"
hvd.barrier("name")  # error: incompatible type "str"; expected "ProcessSet"
hvd.allreduc(tensor)  # error: Module has no attribute "allreduc"
reveal_type(ringd.Context().place.local_rank)  # int
try:
    hvd.barrier()
except ringd.JobFailedError as error:
    reveal_type(error)  # ringd.errors.JobFailedError
"""


@pytest.mark.timeout(300)
def test_a_program_is_checked_as_without_ringd(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    cache = ROOT / ".cache/mypy-with-torch"
    python = os.environ.get("RINGD_PYTHON", sys.executable)
    done = subprocess.run(
        [Path(python).parent / "mypy", "--config-file=", "--strict", "--cache-dir", cache, program],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said: dict[int, str] = {}
    for output in done.stdout.splitlines():
        _, place, rest = output.split(":", 2) if output.startswith("program.py:") else ("", "0", output)
        said[int(place)] = said.get(int(place), "") + rest + "\n"
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        _, _, expected = line.partition("  # ")
        text = said.pop(number, "")
        if not expected:
            assert "error" not in text, f"{line}\n{text}"
        elif expected.startswith("error: "):
            assert "error" in text, f"{line}\n{text}"
            assert expected.removeprefix("error: ") in text, f"{line}\n{text}"
        else:
            assert f'Revealed type is "{expected}"' in text, f"{line}\n{text}"
    assert "Found" in said.pop(0, ""), done.stdout + done.stderr
    assert not said, said
