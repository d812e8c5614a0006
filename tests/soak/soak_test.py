"""The soak as part of tests/run: every attack once, in one run of about two minutes; one outcome
for each attack."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest

from tests.soak import network, programs, report
from tests.soak.attacks import ALL, named
from tests.soak.conductor import Soak
from tests.soak.journal import Journal

# The first test waits for the whole run, which replaces what an attack has broken.
pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can make network namespaces and become another user"
    ),
    pytest.mark.timeout(900),
]


@dataclass(frozen=True)
class Run:
    seed: int
    soak: Soak
    journal: Journal

    def expect_nothing_found(self, lane: str) -> None:
        """Fails with the seed, what was wrong, and what was under way."""
        if any(finding.lane == lane for finding in self.soak.findings):
            pytest.fail(report.failure(self.soak, self.journal, self.seed, lane), pytrace=False)


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Run:
    """The attacks whose tests are selected, by a seed of chance or RINGD_SOAK_SEED."""
    callspecs = [
        getattr(item, "callspec", None) for item in request.session.items if item.path == request.path
    ]
    names = [callspec.params["attack"] for callspec in callspecs if callspec and "attack" in callspec.params]
    seed = int(os.environ.get("RINGD_SOAK_SEED", random.SystemRandom().randrange(1 << 31)))
    network.remove_stale()
    journal = Journal(verbose=False)
    soak = Soak([named(name) for name in names] or [named("none")], seed, journal)
    soak.run(None)
    return Run(seed, soak, journal)


def test_the_programs_are_built() -> None:
    programs.build()


@pytest.mark.parametrize("attack", [attack.name for attack in ALL])
def test_nobody_else_notices(run: Run, attack: str) -> None:
    run.expect_nothing_found(attack)
    assert any(result.name == attack and result.steps for result in run.soak.results), "it was not made"


def test_jobs_begin_and_end_well(run: Run) -> None:
    run.expect_nothing_found("start")
    run.expect_nothing_found("end")
