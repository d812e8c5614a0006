"""Trainers that come, train and go, and people who ask ringd: an attack must not keep them away."""

from __future__ import annotations

import itertools
import threading
import time

from tests.soak import users
from tests.soak.jobs import JobPlan
from tests.soak.journal import Journal
from tests.soak.world import FIRST, World

#: For what takes a tenth of a second on a machine at rest.
PATIENCE_S = 10.0
PAUSE_S = 0.3
#: root has a place of its own wherever somebody else has taken all others.
WHO = (users.TRAINERS[0], users.ROOT, users.TRAINERS[1])

_numbers = itertools.count(1)


class Newcomers:
    """Runs on a thread of its own until it is told to stop."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._stop = threading.Event()
        self.slowest_s = 0.0
        self.count = 0
        self._thread = threading.Thread(target=self._run, name="newcomers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(4 * PATIENCE_S)
        if self._thread.is_alive():
            self._journal.find("newcomers", "one did not end")

    def _run(self) -> None:
        for user in itertools.cycle(WHO):
            try:
                self._train(user)
                self._ask(user)
            except Exception as error:  # One must not end the others.
                self._journal.find("newcomers", f"{user}: {type(error).__name__}: {error}")
            if self._stop.wait(PAUSE_S):
                return

    def _train(self, user: str) -> None:
        began = time.monotonic()
        plan = JobPlan(f"newcomer-{next(_numbers)}", user, (FIRST,))
        job = self._world.start_job(plan, {"SOAK_STEPS": "2", "SOAK_PERIOD": "1"})
        (done,) = job.await_event("done", PATIENCE_S)
        if done is None:
            heard = "\n".join(job.heard())
            self._journal.find("newcomers", f"{user} could not train within {PATIENCE_S:.0f} s\n{heard}")
        self.count += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self._world.forget(job)

    def _ask(self, user: str) -> None:
        try:
            self._world.ringctl(FIRST, user, "status", timeout_s=PATIENCE_S)
        except AssertionError as error:
            self._journal.find("newcomers", f"{user}: {error}")
