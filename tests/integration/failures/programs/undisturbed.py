"""Rank program: works until the file named by STOP exists."""

from __future__ import annotations

import os

from trainer import Trainer, run, say

# Enough to have passed from the negotiated order to the learned one.
MIN_STEPS = 50


def main() -> None:
    trainer = Trainer()
    steps = 0
    while True:
        # All ranks stop after the same step, because they sum who wants to.
        wants_to_stop = steps >= MIN_STEPS and os.path.exists(os.environ["STOP"])
        stop = trainer.submit("stop", float(wants_to_stop))
        expected = sum(float(rank + steps % 1000) for rank in range(trainer.size))
        result = trainer.all_reduce("gradient", float(trainer.rank + steps % 1000), count=5000)
        assert result == expected, f"{result} instead of {expected}"
        steps += 1
        if steps == 1:
            say("working")
        if stop.wait() > 0:
            break
    say("steps", count=steps)


run(main)
