"""Two networks, two optimizers: a generator learns to draw digits that a discriminator takes for
real.

ringctl run -n 2 -- python gan.py
"""

from __future__ import annotations

import argparse

import digits_data
import ringd.torch as hvd
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

NOISE = 16


def make_generator() -> nn.Module:
    return nn.Sequential(nn.Linear(NOISE, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())


def make_discriminator() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))


def loss_of(judgements: torch.Tensor, truth: float) -> torch.Tensor:
    return binary_cross_entropy_with_logits(judgements, torch.full_like(judgements, truth))


def distance(generator: nn.Module, images: torch.Tensor) -> float:
    """Between the mean of drawn images and that of real ones."""
    noise = torch.randn(512, NOISE, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return float((generator(noise).mean(0) - images.flatten(1).mean(0)).norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=24, help="of each rank")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    train, _ = digits_data.load()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    generator, discriminator = make_generator(), make_discriminator()
    # The prefixes are for whoever reads messages: ringd itself numbers names that come twice.
    for_generator = hvd.DistributedOptimizer(
        torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        named_parameters=generator.named_parameters(prefix="generator"),
    )
    for_discriminator = hvd.DistributedOptimizer(
        torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        named_parameters=discriminator.named_parameters(prefix="discriminator"),
    )
    hvd.broadcast_parameters(generator.state_dict(), root_rank=0)
    hvd.broadcast_parameters(discriminator.state_dict(), root_rank=0)

    # Each rank draws its own noise.
    noise_source = torch.Generator().manual_seed(100 + hvd.rank())
    images_of_all = train.tensors[0]
    if hvd.rank() == 0:
        print(f"at first: distance {distance(generator, images_of_all):.3f}", flush=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, _ in loader:
            real = images.flatten(1)
            drawn = generator(torch.randn(len(real), NOISE, generator=noise_source))

            # One backward pass with both losses. Two passes need backward_passes_per_step=2.
            for_discriminator.zero_grad()
            loss = loss_of(discriminator(real), 1.0) + loss_of(discriminator(drawn.detach()), 0.0)
            loss.backward()
            for_discriminator.step()

            # The generator's pass goes through the discriminator. Frozen, that gets no gradients,
            # so none of them are computed and reduced for nothing.
            discriminator.requires_grad_(False)
            for_generator.zero_grad()
            loss_of(discriminator(drawn), 1.0).backward()
            for_generator.step()
            discriminator.requires_grad_(True)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: distance {distance(generator, images_of_all):.3f}", flush=True)


if __name__ == "__main__":
    main()
