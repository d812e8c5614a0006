"""Rank program: what goes wrong in silence elsewhere is right here, or is named with the line that
helps."""

from __future__ import annotations

from collections.abc import Callable

import ringd.torch as hvd
import torch
from torch import nn
from trapped_training import ROWS, Net, batch, distributed, expect_equal_ranks, loss_of, refused, sgd, warned


def clip_norm(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)


def clip_value(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def scale_data(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.data.mul_(0.5)


def replace(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad = parameter.grad * 0.5


def a_gradient_changed_while_it_is_reduced() -> None:
    changes: list[Callable[[nn.Module], None]] = [clip_norm, clip_value, scale_data, replace]
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        for change in changes:
            model = Net()
            optimizer = distributed(model, compression=compression)
            for step in range(2):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                change(model)
                with refused("'last.", "(and 3 more)", "optimizer.synchronize()", "skip_synchronize()"):
                    optimizer.step()
            # It goes on, in the way that the message names.
            optimizer.zero_grad()
            loss_of(model, 2).backward()
            optimizer.synchronize()
            change(model)
            with optimizer.skip_synchronize():
                optimizer.step()
            expect_equal_ranks(model, change.__name__)


def gradients_scaled_by_a_grad_scaler() -> None:
    model = Net()
    optimizer = distributed(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if step == 0:
            with refused("optimizer.synchronize()", "unscaled"):
                scaler.step(optimizer)
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            continue
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    expect_equal_ranks(model, "GradScaler")


def gradients_that_share_a_buffer() -> None:
    """Views of one tensor count its changes together; that is no change of theirs."""
    model = Net()
    parameters = list(model.parameters())
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    optimizer = distributed(model)
    loss_of(model, 0).backward()
    optimizer.step()
    expect_equal_ranks(model, "a shared buffer")


def the_wrapped_optimizer_stepped_in_place_of_the_distributed_one() -> None:
    model = Net()
    original = sgd(model)
    optimizer = hvd.DistributedOptimizer(original, model.named_parameters())
    loss_of(model, 0).backward()
    with refused("'last.", "(and 3 more)", "optimizer = hvd.DistributedOptimizer(optimizer"):
        original.step()
    optimizer.step()
    expect_equal_ranks(model, "the wrapped optimizer")


def a_step_that_skips_the_synchronization_it_needs() -> None:
    model = Net()
    optimizer = distributed(model)
    loss_of(model, 0).backward()
    with refused("'last.", "(and 3 more)", "optimizer.synchronize()"), optimizer.skip_synchronize():
        optimizer.step()
    optimizer.step()
    with warned(1, "reduced twice", "with optimizer.skip_synchronize(): optimizer.step()"):
        optimizer.synchronize()
        optimizer.step()
    with warned(1, "synchronize() was called after synchronize()", "reduced twice"):
        optimizer.synchronize()
        optimizer.synchronize()
    with warned(0):
        for zero in (optimizer.zero_grad, model.zero_grad):
            # A step that is left out.
            zero()
            loss_of(model, 1).backward()
            optimizer.synchronize()
        optimizer.zero_grad()
        loss_of(model, 2).backward()
        optimizer.step()


def parameters_unfrozen_after_wrapping() -> None:
    for with_zero_grad in (True, False):
        model = Net()
        model.first.requires_grad_(False)
        optimizer = distributed(model)
        before = model.first.weight.detach().clone()
        optimizer.zero_grad()
        loss_of(model, 0).backward()
        optimizer.step()
        assert torch.equal(before, model.first.weight)
        model.first.requires_grad_(True)
        for step in range(1, 4):
            if with_zero_grad:
                optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        assert not torch.equal(before, model.first.weight)
        expect_equal_ranks(model, "unfrozen")
        # And frozen again: it stays, momentum or not, as without ringd.
        optimizer.zero_grad()
        model.first.requires_grad_(False)
        before = model.first.weight.detach().clone()
        loss_of(model, 4).backward()
        optimizer.step()
        assert torch.equal(before, model.first.weight)
        expect_equal_ranks(model, "frozen")


def groups_added_later() -> None:
    """Also to the optimizer that was wrapped, and of parameters that are frozen then."""
    model, head = Net(), nn.Linear(2, 2)
    original = sgd(model)
    optimizer = hvd.DistributedOptimizer(original, model.named_parameters())
    head.bias.requires_grad_(False)
    original.add_param_group({"params": list(head.parameters())})
    hvd.broadcast_parameters(head.state_dict(), root_rank=0)
    for step in range(3):
        optimizer.zero_grad()
        head(model(batch(step))).square().mean().backward()
        optimizer.step()
        head.bias.requires_grad_(True)
    expect_equal_ranks(model, "the wrapped optimizer's")
    expect_equal_ranks(head, "a group added to the wrapped optimizer")


def a_micro_batch_left_over() -> None:
    """The next epoch's first step has both of its passes."""
    for zero in ("optimizer", "model", "in place"):
        expected, model = Net(), Net()
        reference = distributed(expected)
        optimizer = distributed(model, backward_passes_per_step=2)
        for epoch in range(2):
            for micro in range(5):
                if micro % 2 == 0:
                    owner = optimizer if zero == "optimizer" else model
                    owner.zero_grad(set_to_none=zero != "in place")
                (loss_of(model, 10 * epoch + micro) / 2).backward()
                if micro % 2 == 1:
                    optimizer.step()
            for first in (0, 2):
                reference.zero_grad()
                total = loss_of(expected, 10 * epoch + first) + loss_of(expected, 10 * epoch + first + 1)
                (total / 2).backward()
                reference.step()
        expect_equal_ranks(model, "a micro-batch left over")
        for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


def more_passes_than_said() -> None:
    model = Net()
    optimizer = distributed(model)
    loss_of(model, 0).backward()
    with refused("'last.", "backward_passes_per_step=2)", "requires_grad_(False)"):
        loss_of(model, 1).backward()
    optimizer.zero_grad()  # begins anew
    loss_of(model, 2).backward()
    optimizer.step()
    expect_equal_ranks(model, "more passes")


def gan(style: str) -> None:
    """A generator's pass through the discriminator leaves gradients of the discriminator, too."""
    torch.manual_seed(6)
    generator, discriminator = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    alone = [nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))]
    for ours, theirs in zip((generator, discriminator), alone, strict=True):
        theirs.load_state_dict(ours.state_dict())
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(prefix))
        for prefix, net in (("generator", generator), ("discriminator", discriminator))
    ]
    references = [torch.optim.SGD(net.parameters(), lr=0.1) for net in alone]

    def train(nets: list[nn.Module], steps: list[torch.optim.Optimizer], inputs: torch.Tensor) -> None:
        make, judge = nets
        for_make, for_judge = steps
        (judge if style == "model" else for_judge).zero_grad()
        (judge(make(inputs[:, :3]).detach()).mean() - judge(inputs).mean()).backward()
        for_judge.step()
        if style == "frozen":
            judge.requires_grad_(False)
        (make if style == "model" else for_make).zero_grad()
        (-judge(make(inputs[:, :3])).mean()).backward()
        for_make.step()
        judge.requires_grad_(True)

    with warned(0 if style == "frozen" else 1, "'discriminator.", "discriminator.requires_grad_(False)"):
        for step in range(4):
            train([generator, discriminator], optimizers, batch(step))
    everything = [torch.cat([_batch_of(rank, step) for rank in range(hvd.size())]) for step in range(4)]
    for inputs in everything:
        train(alone, references, inputs)
    for ours, theirs in zip((generator, discriminator), alone, strict=True):
        expect_equal_ranks(ours, f"GAN, {style}")
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-5), f"GAN, {style}: not as alone"


def a_gan_s_gradients_set_to_zero_in_place() -> None:
    """The optimizer waits for those that are being reduced; the model can't, and does harm."""
    generator, discriminator = nn.Linear(2, 2), nn.Linear(2, 1)
    for_make, for_judge = (
        hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(prefix))
        for prefix, net in (("generator", generator), ("discriminator", discriminator))
    )
    ones = torch.ones(1, 2)
    with warned(1, "'discriminator.", "discriminator.requires_grad_(False)"):
        for _ in range(3):
            for_judge.zero_grad(set_to_none=False)
            discriminator(generator(ones).detach()).sum().backward()
            assert gradient_of(discriminator).tolist() == [1.0]
            for_judge.step()
            for_make.zero_grad(set_to_none=False)
            discriminator(generator(ones)).sum().backward()
            for_make.step()
    discriminator.zero_grad(set_to_none=False)
    with refused("'discriminator.", "optimizer.zero_grad(set_to_none=False)"):
        discriminator(generator(ones).detach()).sum().backward()
    for_judge.zero_grad()


def gradient_of(linear: nn.Linear) -> torch.Tensor:
    assert linear.bias.grad is not None
    return linear.bias.grad


def _batch_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(100 * step + rank))


def parameters_of_two_optimizers() -> None:
    model = Net()
    older = distributed(model)
    loss_of(model, 0).backward()  # in flight when the next one takes over
    newer = distributed(model)
    for step in range(2):
        newer.zero_grad()
        loss_of(model, step).backward()
        newer.step()
    expect_equal_ranks(model, "the newer of two optimizers")
    with refused("'first.weight'", "add_param_group", "del optimizer"):
        older.step()
    del newer
    for step in range(2):
        older.zero_grad()
        loss_of(model, step).backward()
        older.step()
    expect_equal_ranks(model, "the older one, alone again")


def two_models_of_one_class() -> None:
    """Their parameters have the same names; each rank has its own order of backward passes."""
    models = Net(), Net()
    optimizers = [distributed(model) for model in models]
    for number in (0, 1) if hvd.rank() == 0 else (1, 0):
        (100.0**number * loss_of(models[number], 0)).backward()
    for optimizer in optimizers:
        optimizer.synchronize()
    small, large = (gradient_of(model.last) for model in models)
    torch.testing.assert_close(large, 100.0 * small)
    for optimizer in optimizers:
        optimizer.zero_grad()


def a_job_left_with_gradients_in_flight(*, are_zeroed: bool) -> None:
    model = Net()
    optimizer = distributed(model)
    loss_of(model, 0).backward()
    hvd.barrier()  # else a rank may leave before another has submitted, which is that one's error
    hvd.shutdown()
    if are_zeroed:
        optimizer.zero_grad()
    hvd.init()
    if not are_zeroed:
        optimizer.step()  # what the former job has not reduced this one does
        expect_equal_ranks(model, "gradients of the former job")
        optimizer.zero_grad()
    loss_of(model, 1).backward()
    optimizer.step()
    expect_equal_ranks(model, "the next job")


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    a_gradient_changed_while_it_is_reduced()
    gradients_scaled_by_a_grad_scaler()
    gradients_that_share_a_buffer()
    the_wrapped_optimizer_stepped_in_place_of_the_distributed_one()
    a_step_that_skips_the_synchronization_it_needs()
    parameters_unfrozen_after_wrapping()
    groups_added_later()
    a_micro_batch_left_over()
    more_passes_than_said()
    for style in ("optimizer", "model", "frozen"):
        gan(style)
    a_gan_s_gradients_set_to_zero_in_place()
    parameters_of_two_optimizers()
    two_models_of_one_class()
    for are_zeroed in (True, False):
        a_job_left_with_gradients_in_flight(are_zeroed=are_zeroed)
    print("all is well")


main()
