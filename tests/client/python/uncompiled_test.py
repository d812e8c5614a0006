"""Programs that torch.compile compiles around what ringd does. Against the account of
process_set_account.py, which speaks for three other ranks."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable

import pytest
import ringd.torch as hvd
import torch
from ringd.torch import job as jobs
from torch import nn

from tests.client.python.process_set_account import Account

# Each case compiles, which takes seconds.
pytestmark = pytest.mark.timeout(300)


class AccountWithArena(Account):
    """Gradients get memory there, as with a ringd: with a finalizer each, which Dynamo's guards
    saw."""

    raw = None

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[int, ctypes.Array] = {}

    def arena_alloc(self, size: int) -> int:
        memory = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def arena_free(self, address: int) -> None:
        del self.memory[address]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> AccountWithArena:
    account = AccountWithArena()
    monkeypatch.setattr(jobs, "_job", jobs.Job(account))  # type: ignore[arg-type]
    return account


def training_step(seed: int) -> Callable[[], torch.Tensor]:
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(prefix=f"of_{seed}")
    )

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 3)).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_a_whole_step_is_compiled(account: AccountWithArena) -> None:
    step = torch.compile(training_step(1), backend="eager")
    losses = [step().item() for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    assert [spec.name for spec in account.submitted[:2]] == ["gradient.of_1.bias", "gradient.of_1.weight"]
    assert len(account.submitted) == 6


def test_compiled_autograd_calls_the_hooks(account: AccountWithArena) -> None:
    step = training_step(2)
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = torch.compile(step, backend="eager")
        for _ in range(2):
            compiled()
    assert len(account.submitted) == 4


def test_operations_in_compiled_functions_run_each_time(account: AccountWithArena) -> None:
    def doubled(tensor: torch.Tensor) -> torch.Tensor:
        return hvd.broadcast(hvd.allreduce(tensor * 2, name="x", op=hvd.Sum), 0, name="y") + 1

    compiled = torch.compile(doubled, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2)).shape == (2,)
    assert [spec.name for spec in account.submitted] == ["allreduce.x", "broadcast.y"] * 2


def test_the_package_does_not_import_dynamo() -> None:
    program = "import sys, ringd.torch; print('torch._dynamo' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout == "False\n", ended.stderr
