"""Rank program: broadcasts of tensors, objects, parameters and optimizer state."""

from __future__ import annotations

import sys
import threading
from typing import Any

import ringd
import ringd.torch as hvd
import torch

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.bool,
]


def tensors() -> None:
    for root in range(hvd.size()):
        for dtype in TYPES:
            for shape in ((), (5,), (0, 2), (3, 4), (70_001,)):
                mine = torch.full(shape, hvd.rank() % 2 == 0).to(dtype)
                expected = torch.full(shape, root % 2 == 0).to(dtype)
                name = f"{dtype} {shape} from {root}"
                assert torch.equal(hvd.broadcast(mine, root, name), expected), name
                assert torch.equal(mine, torch.full(shape, hvd.rank() % 2 == 0).to(dtype)), "input changed"
                assert hvd.broadcast_(mine, root, f"{name}, in place") is mine
                assert torch.equal(mine, expected), f"{name}, in place"
    whole = torch.full((4, 3), float(hvd.rank()))
    hvd.broadcast_(whole[:, 1], hvd.size() - 1, "a column")
    assert whole[:, 1].tolist() == [hvd.size() - 1.0] * 4
    assert whole[:, 2].tolist() == [float(hvd.rank())] * 4
    handles = [hvd.broadcast_async(torch.tensor(hvd.rank()), root) for root in range(hvd.size())]
    assert [int(hvd.synchronize(handle)) for handle in handles] == list(range(hvd.size()))


def large_tensors() -> None:
    """Of ordinary memory, so large that they are copied while they are on their way; at some ranks
    in the arena."""
    count = 1_300_007
    for root in range(hvd.size()):
        expected = torch.arange(count, dtype=torch.float32) + root
        in_arena = hvd.empty(count, dtype=torch.float32)
        mine = in_arena if (hvd.rank() + root) % 3 == 0 else torch.empty(count)
        for step in range(3):
            torch.add(expected, hvd.rank() - root, out=mine)
            handles = [hvd.broadcast_async(mine + i, root, f"large {i}") for i in range(3)]
            for i, handle in enumerate(handles):
                assert torch.equal(hvd.synchronize(handle), expected + i), f"from {root}, step {step}, {i}"
            assert torch.equal(mine, expected + (hvd.rank() - root)), "input changed"
            assert torch.equal(hvd.broadcast(mine, root, "large"), expected), f"from {root}, step {step}"
            hvd.broadcast_(mine, root, "large, in place")
            assert torch.equal(mine, expected), f"from {root}, step {step}, in place"


def objects() -> None:
    for root in range(hvd.size()):
        mine = {"rank": hvd.rank(), "text": "ä" * (hvd.rank() * 5000), "nothing": None}
        received = hvd.broadcast_object(mine, root)
        assert received == {"rank": root, "text": "ä" * (root * 5000), "nothing": None}
    objects_of_this_program()
    # What can't be pickled is an error everywhere, not a wait.
    unpicklable(threading.Lock(), "pickle")
    # Without the package there is pickle's part of it, and its name.
    sys.modules["cloudpickle"] = None  # type: ignore[assignment]
    assert hvd.broadcast_object({"rank": hvd.rank()}, 1) == {"rank": 1}
    unpicklable(lambda: None, "pip install cloudpickle")
    del sys.modules["cloudpickle"]


def objects_of_this_program() -> None:
    """As with Horovod: functions and classes that pickle does not take."""
    root = hvd.size() - 1
    factor = hvd.rank() + 2

    class Settings:
        scale = factor

        def scaled(self, number: int) -> int:
            return number * self.scale

    objects = {"closure": lambda number: number * factor, "class": Settings, "settings": Settings()}
    received = hvd.broadcast_object(objects, root)
    assert received["closure"](10) == 10 * (root + 2)
    assert received["class"]().scaled(3) == received["settings"].scaled(3) == 3 * (root + 2)


def unpicklable(obj: Any, words: str) -> None:
    try:
        hvd.broadcast_object(obj, 0, name="unpicklable")
    except ringd.InvalidArgumentError as error:
        assert (words if hvd.rank() == 0 else "rank 0") in str(error), error
    except TypeError as error:
        assert hvd.rank() == 0
        assert words in str(error), error
    else:
        raise AssertionError(f"{obj} was broadcast")


def parameters() -> None:
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten())
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=1)
    torch.manual_seed(1)
    reference = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten())
    for (name, mine), other in zip(model.state_dict().items(), reference.state_dict().values(), strict=True):
        assert torch.equal(mine, other), name


def optimizer_state() -> None:
    def train(optimizer: torch.optim.Optimizer, model: torch.nn.Module, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()

    makers: list[Any] = [
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
        lambda p, lr: torch.optim.AdamW(p, lr=lr, amsgrad=True),
        lambda p, lr: torch.optim.LBFGS(p, lr=lr),
    ]
    for make in makers:
        torch.manual_seed(5)
        model = torch.nn.Linear(4, 3)
        optimizer = make(model.parameters(), 0.1 if hvd.rank() == 0 else 0.5)
        if hvd.rank() == 0 and not isinstance(optimizer, torch.optim.LBFGS):
            train(optimizer, model, 3)  # only the root has a state
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups[0]["lr"] == 0.1
        if isinstance(optimizer, torch.optim.LBFGS):
            continue
        train(optimizer, model, 2)
        for name, value in model.state_dict().items():
            assert torch.equal(value, hvd.broadcast(value, 0)), f"{type(optimizer).__name__} {name}"


def objects_with_another_default_device() -> None:
    """Objects are the host's, and so is what ranks agree by."""
    for device in ("meta", "cpu"):
        torch.set_default_device(device)
        assert hvd.broadcast_object({"rank": hvd.rank()}, 1, "elsewhere") == {"rank": 1}
        first = hvd.add_process_set([0])
        assert first.included() == (hvd.rank() == 0)
        hvd.remove_process_set(first)
        assert hvd.empty(0).device.type == hvd.empty(3).device.type == "cpu"
        linear = torch.nn.Linear(2, 2, device="cpu")
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)
        if hvd.rank() == 0:
            optimizer.state[linear.weight]["momentum_buffer"] = torch.ones(2, 2, device="cpu")
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.state[linear.weight]["momentum_buffer"].tolist() == [[1.0] * 2] * 2


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    tensors()
    large_tensors()
    objects()
    parameters()
    optimizer_state()
    objects_with_another_default_device()
    hvd.barrier()
    print("all is well")


main()
