"""Rank program: what holds on to an optimizer from before it was wrapped (schedules, hooks, added
groups) still does after a state has been loaded, and all ranks decide alike by a closure's loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ringd.torch as hvd
import torch
from torch import nn

# Two hold the settings: the optimizer that was wrapped, and the one to be used.
Pair = tuple[torch.optim.Optimizer, Any]


def expect_equal_ranks(model: nn.Module, what: str) -> None:
    for name, parameter in model.named_parameters():
        root = hvd.broadcast(parameter.detach(), 0, f"check.{name}")
        assert torch.equal(parameter, root), f"{what}: {name} differs between the ranks"


def step(optimizer: Any, *layers: nn.Module) -> None:
    optimizer.zero_grad()
    nn.Sequential(*layers)(torch.full((2, 3), hvd.rank() + 1.0)).sum().backward()
    optimizer.step()


def make() -> tuple[nn.Module, torch.optim.SGD, Any]:
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    original = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    return model, original, hvd.DistributedOptimizer(original, model.named_parameters())


def broadcast(pair: Pair) -> None:
    hvd.broadcast_optimizer_state(pair[1], root_rank=0)


def broadcast_of_the_wrapped(pair: Pair) -> None:
    hvd.broadcast_optimizer_state(pair[0], root_rank=0)


def load(pair: Pair) -> None:
    pair[1].load_state_dict(pair[1].state_dict())


def load_the_wrapped(pair: Pair) -> None:
    pair[0].load_state_dict(pair[1].state_dict())


LOADS: list[Callable[[Pair], None]] = [broadcast, broadcast_of_the_wrapped, load, load_the_wrapped]


def schedules_from_before_and_after_wrapping() -> None:
    for change in LOADS:
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        original = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
        early = torch.optim.lr_scheduler.StepLR(original, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(original, model.named_parameters())
        late = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
        for count in range(3):
            change((original, optimizer))
            step(optimizer, model)
            with warnings.catch_warnings():
                # The one from before does not know the optimizer that steps.
                warnings.simplefilter("ignore")
                early.step()
            late.step()
            rates = [one.param_groups[0]["lr"] for one in (original, optimizer)]
            assert rates == [rates[0]] * 2, (change.__name__, rates)
            assert abs(rates[0] - 0.05 ** (count + 1)) < 1e-12, (change.__name__, count, rates)
        expect_equal_ranks(model, change.__name__)


def groups_added_on_either_side() -> None:
    for change in LOADS:
        for side in (0, 1):
            model, original, optimizer = make()
            step(optimizer, model)
            change((original, optimizer))
            head = nn.Linear(2, 1)
            (original, optimizer)[side].add_param_group({"params": list(head.parameters())})
            hvd.broadcast_parameters(head.state_dict(), root_rank=0)
            before = head.weight.detach().clone()
            for _ in range(2):
                step(optimizer, model, head)
            assert len(original.param_groups) == len(optimizer.param_groups) == 2
            assert not torch.equal(before, head.weight)
            expect_equal_ranks(model, change.__name__)
            expect_equal_ranks(head, f"{change.__name__}, a group added")


def states_are_those_of_the_root() -> None:
    model, original, optimizer = make()
    if hvd.rank() == 0:
        saved = original.state_dict()
        saved["state"] = {
            index: {"momentum_buffer": torch.full(shape, 7.0)} for index, shape in enumerate([(2, 3), (2,)])
        }
        saved["param_groups"][0]["lr"] = 0.25
        optimizer.load_state_dict(saved)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for one in (original, optimizer):
        assert one.param_groups[0]["lr"] == 0.25
        assert one.param_groups[0]["params"][0] is model.weight
        assert one.state[model.weight]["momentum_buffer"].tolist() == [[7.0] * 3] * 2
    step(optimizer, model)
    assert original.state is optimizer.state
    expect_equal_ranks(model, "the root's state")


def states_keep_the_root_s_type_and_order() -> None:
    """As of 8-bit and mixed-precision optimizers, and of a model in channels-last."""
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer: Any = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    if hvd.rank() == 0:
        for parameter in model.parameters():
            optimizer.state[parameter] = {
                "step": torch.tensor(7.0),
                "exp_avg": torch.full_like(parameter, 0.25, dtype=torch.bfloat16, requires_grad=False),
                "exp_avg_sq": torch.randn(parameter.shape),
            }
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    forms = [
        [(name, value.dtype, value.stride()) for name, value in optimizer.state[parameter].items()]
        for parameter in model.parameters()
    ]
    assert forms == hvd.broadcast_object(forms, 0), forms
    assert forms[0][1][1:] == (torch.bfloat16, model.weight.stride()), forms
    for parameter in model.parameters():
        for value in optimizer.state[parameter].values():
            assert torch.equal(value, hvd.broadcast(value, 0))
        assert optimizer.state[parameter]["exp_avg"].unique().tolist() == [0.25]


def hooks_of_steps_run_once() -> None:
    for change in (None, *LOADS):
        model, original, optimizer = make()
        called: list[str] = []
        reduced: list[float] = []

        def before(
            of: torch.optim.Optimizer,
            *_: Any,
            called: list[str] = called,
            reduced: list[float] = reduced,
            model: nn.Module = model,
        ) -> None:
            called.append("before")
            gradient = model.get_parameter("weight").grad
            assert gradient is not None
            reduced.append(float(gradient[0, 0]))

        def after(*_: Any, called: list[str] = called) -> None:
            called.append("after")

        original.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        if change is not None:
            change((original, optimizer))
        for _ in range(2):
            step(optimizer, model)
        assert called == ["before", "after"] * 2, (change, called)
        # Two rows of rank + 1 each.
        assert reduced == [hvd.size() + 1.0] * 2, (change, reduced)


def losses_of_closures() -> None:
    losses: list[Any] = [
        torch.tensor(hvd.rank() + 1.0),
        hvd.rank() + 1.0,
        hvd.rank() + 1,
        torch.tensor([hvd.rank() + 1.0], dtype=torch.float64),
    ]
    ranks = hvd.size()
    for op, expected in ((hvd.Average, (ranks + 1) / 2), (hvd.Sum, ranks * (ranks + 1) / 2)):
        model = nn.Linear(3, 2)
        optimizer: Any = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op
        )

        def evaluate(loss: Any, optimizer: Any = optimizer, model: nn.Module = model) -> Any:
            def closure() -> Any:
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
                return loss

            return optimizer.step(closure)

        for loss in losses:
            got = evaluate(loss)
            assert float(got) == expected, (op, loss, got)
            if isinstance(loss, torch.Tensor):
                assert (got.dtype, got.shape) == (loss.dtype, loss.shape)
                assert float(loss) == hvd.rank() + 1, "the program's own was overwritten"
        # No loss, or none that has an average: as the closure gave it.
        batch = torch.ones(hvd.rank() + 2)
        for other in (None, "text", batch):
            assert evaluate(other) is other


def searches_along_lines() -> None:
    """With data that differ so much that each rank alone would stop elsewhere."""
    generator = torch.Generator().manual_seed(10 + hvd.rank())
    inputs = torch.randn(20, 5, generator=generator) * (hvd.rank() + 1)
    targets = torch.randn(20, 1, generator=generator) * 3 ** hvd.rank()
    for line_search in ("strong_wolfe", None):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
        rate = 1.0 if line_search else 0.05
        optimizer: Any = hvd.DistributedOptimizer(
            torch.optim.LBFGS(model.parameters(), lr=rate, line_search_fn=line_search),
            model.named_parameters(),
        )
        evaluations = 0
        losses = []

        def closure(optimizer: Any = optimizer, model: nn.Module = model) -> torch.Tensor:
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            return loss

        for _ in range(4):
            losses.append(float(optimizer.step(closure)))
            count = hvd.broadcast(torch.tensor(evaluations), 0, "check.evaluations")
            assert evaluations == int(count), (line_search, evaluations, int(count))
        assert losses[-1] < losses[0], losses
        expect_equal_ranks(model, f"LBFGS, {line_search}")


def another_kind_of_optimizer_is_refused() -> None:
    model = nn.Linear(3, 2)
    optimizer: torch.optim.Optimizer
    if hvd.rank() == 0:
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
        hvd.broadcast_optimizer_state(optimizer, 0)
        return
    optimizer = torch.optim.Adam(model.parameters())
    try:
        hvd.broadcast_optimizer_state(optimizer, 0)
    except ValueError as error:
        assert "it has no betas, eps" in str(error), error
    else:
        raise AssertionError("was not refused")
    # It is as it was.
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    schedules_from_before_and_after_wrapping()
    groups_added_on_either_side()
    states_are_those_of_the_root()
    states_keep_the_root_s_type_and_order()
    hooks_of_steps_run_once()
    losses_of_closures()
    searches_along_lines()
    another_kind_of_optimizer_is_refused()
    print("all is well")


main()
