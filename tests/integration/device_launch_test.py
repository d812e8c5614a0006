"""The trainer's own process launches on its GPU what ringd schedules (device_launch). On emulated
GPUs."""

from __future__ import annotations

import json

import pytest

from tests.integration.cluster import Cluster
from tests.integration.device_test import SUMS
from tests.integration.emulated_gpus import start_on_gpus


@pytest.mark.parametrize("layout", [[2], [1, 1], [2, 1]], ids=str)
def test_trainers_launch_and_sums_are_right(cluster: Cluster, layout: list[int]) -> None:
    cluster.settings["device_launch"] = "trainer"
    start_on_gpus(cluster, SUMS, layout).expect_success()
