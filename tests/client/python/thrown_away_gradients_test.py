"""Reduced gradients that are thrown away, and what no pass has given a gradient."""

from __future__ import annotations

from typing import Any

import pytest
import ringd
import ringd.torch as hvd
import torch
from ringd.torch import gradient_waste
from ringd.torch import job as job_module
from ringd.torch.gradient_slot import GradientSlot
from ringd.torch.job import Communicator, Job
from torch import nn

from tests.client.python.reduced import distributed, expect_same, loss_of, make, sgd

pytestmark = [
    pytest.mark.usefixtures("doubling"),
    pytest.mark.filterwarnings("ignore:zero_grad.. throws away"),
]


class Agreement:
    """In place of the ranks' agreement: what was asked, and the answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = True
        self.asked: list[list[str]] = []
        monkeypatch.setattr(gradient_waste, "are_equal_on_all", self._ask)

    def _ask(self, words: list[str], name: str, process_set: Any) -> bool:
        assert "zero_grad() of gradients that are being reduced" in name
        self.asked.append(words)
        return self.answer


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> Agreement:
    return Agreement(monkeypatch)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(3, 3)
        self.one = nn.Linear(3, 2)
        self.other = nn.Linear(3, 2)


@pytest.mark.parametrize("by", ["optimizer", "model"])
def test_ranks_agree_on_what_they_throw_away(agreement: Agreement, by: str) -> None:
    model, reference = make(), make()
    optimizer = distributed(sgd(model), model)
    loss_of(model, 1).backward()
    (optimizer if by == "optimizer" else model).zero_grad()
    loss_of(model, 2).backward()
    optimizer.step()
    (2 * loss_of(reference, 2)).backward()
    sgd(reference).step()
    expect_same(model, reference)
    assert agreement.asked == [["0.bias", "0.weight", "2.bias", "2.weight"]]
    optimizer.zero_grad()  # of what a step has used
    assert len(agreement.asked) == 1


def test_who_throws_away_others_than_the_rest_is_told(agreement: Agreement) -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    agreement.answer = False
    loss_of(model).backward()
    with pytest.raises(ringd.FailedPreconditionError, match="thrown away.*'0.bias' .and 3 more"):
        optimizer.zero_grad()
    agreement.answer = True
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def test_the_optimizer_throws_away_a_whole_round(agreement: Agreement) -> None:
    """Another rank may have used the parameters that this one has not."""
    model = Heads()
    optimizer = distributed(sgd(model), model)
    model.one(model.body(torch.ones(1, 3))).sum().backward()
    optimizer.zero_grad()
    assert agreement.asked == [
        [f"{part}.{kind}" for part in ("body", "one", "other") for kind in ("bias", "weight")]
    ]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_parameter_that_is_used_in_the_dropped_pass_alone_has_zeros(agreement: Agreement) -> None:
    model, reference = Heads(), Heads()
    optimizer = distributed(sgd(model), model)
    for step in range(2):
        model.one(model.body(torch.ones(1, 3))).sum().backward()
        model.zero_grad()
        model.other(model.body(torch.ones(1, 3))).sum().backward()
        optimizer.step()
        assert agreement.asked[step:] == [["body.bias", "body.weight", "one.bias", "one.weight"]]
        reference.zero_grad()
        (2 * reference.other(reference.body(torch.ones(1, 3))).sum()).backward()
        sgd(reference).step()
        expect_same(model, reference)
        optimizer.zero_grad()


def test_who_takes_single_gradients_out_of_a_step_is_told_how(agreement: Agreement) -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    loss_of(model).backward()
    next(model.parameters()).grad = None
    with pytest.raises(ringd.FailedPreconditionError, match="'0.weight' was changed after"):
        optimizer.step()
    assert not agreement.asked


def test_what_was_thrown_away_in_a_job_concerns_no_later_one(
    agreement: Agreement, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    for _ in range(2):
        loss_of(model).backward()
        model.zero_grad()
    loss_of(model).backward()  # throws away what was in flight
    later = Job(job.context)
    monkeypatch.setattr(later, "world", Communicator(0, 2))
    monkeypatch.setattr(job_module, "_job", later)
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert not agreement.asked


def test_a_gradient_that_can_not_be_reduced_can_be_thrown_away(agreement: Agreement) -> None:
    model = nn.ModuleDict({"rows": nn.Embedding(4, 3, sparse=True), "body": nn.Linear(3, 2)})
    optimizer = distributed(sgd(model), model)
    with pytest.raises(ringd.InvalidArgumentError):
        model["body"](model["rows"](torch.tensor([1]))).sum().backward()
    for _ in range(2):
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in model.parameters())
    model["body"](torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_an_interrupted_zero_grad_may_be_called_again(
    agreement: Agreement, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    optimizer = distributed(sgd(model), model)
    loss_of(model).backward()
    submitted: list[GradientSlot] = []
    submit = GradientSlot.submit

    def counted(slot: GradientSlot, **options: Any) -> None:
        submitted.append(slot)
        submit(slot, **options)

    def interrupted(slot: GradientSlot) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GradientSlot, "submit", counted)
    with monkeypatch.context() as patch:
        patch.setattr(GradientSlot, "discard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optimizer.zero_grad()
    optimizer.zero_grad()
    assert not submitted
    assert len(agreement.asked) == 1


@pytest.mark.skipif(not hasattr(torch.empty(0), "grad_dtype"), reason="this PyTorch has no grad_dtype")
def test_an_unused_parameter_gets_zeros_of_its_gradients_type() -> None:
    model = Heads().to(torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad_dtype = torch.float32
    optimizer = distributed(sgd(model), model)
    for _ in range(2):
        model.one(model.body(torch.ones(1, 3, dtype=torch.bfloat16))).sum().backward()
        optimizer.synchronize()
        assert model.other.weight.grad is not None
        assert model.other.weight.grad.dtype == torch.float32
        assert not model.other.weight.grad.any()
        optimizer.zero_grad()


class Remembers:
    """A compressor that keeps what it has seen."""

    seen: list[torch.Tensor] = []

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        cls.seen.append(tensor.clone())
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, _: None) -> torch.Tensor:
        return tensor


def test_a_compressor_sees_nothing_but_zeros_and_gradients() -> None:
    spoilt = [torch.full((4, 3), float("nan")) for _ in range(50)]
    model = make()
    del spoilt
    hvd.DistributedOptimizer(sgd(model), model.named_parameters(), compression=Remembers)
    assert len(Remembers.seen) == 4
    assert not any(tensor.any() for tensor in Remembers.seen)
