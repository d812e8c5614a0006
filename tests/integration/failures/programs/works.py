"""Rank program: twenty steps, each sum compared."""

from __future__ import annotations

from trainer import Trainer, run


def main() -> None:
    trainer = Trainer()
    for step in range(20):
        assert trainer.all_reduce("gradient", float(step), count=1000) == step * trainer.size


run(main)
