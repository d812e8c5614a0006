"""Floors are arithmetic."""

from __future__ import annotations

import pytest
from harness import floors
from harness.site import Topology
from harness.work import MIB, model_gradients, payload_bytes

FOUR = Topology(nodes=4, ranks_per_node=1, rate_mbit=1000)


def test_the_known_floors_of_the_wire() -> None:
    assert floors.wire_floor(64 * MIB, 4, 1000) == pytest.approx(0.8053, rel=1e-3)
    assert floors.wire_floor(64 * MIB, 2, 10000) == pytest.approx(0.05369, rel=1e-3)
    resnet = payload_bytes(model_gradients("resnet101"), "f32")
    assert floors.wire_floor(resnet, 4, 1000) == pytest.approx(2.138, rel=1e-3)


def test_one_node_has_no_wire() -> None:
    assert floors.wire_floor(64 * MIB, 1, 1000) == 0.0


def test_a_large_tensor_is_bound_by_memory_and_a_small_one_by_a_cache_line() -> None:
    assert floors.host_floor(0.004, 120.0) == pytest.approx(0.004)
    assert floors.host_floor(0.0, 120.0) == pytest.approx(60e-9)


def test_a_size_stands_for_those_up_to_four_times_as_large() -> None:
    assert [floors.size_class(size) for size in (4096, 16383, 16384, 100000)] == [4096, 4096, 16384, 65536]


def test_faster_than_the_line_is_found_out() -> None:
    assert floors.beats_the_line(0.5, 64 * MIB, FOUR)
    assert not floors.beats_the_line(0.8433, 64 * MIB, FOUR)


def test_the_shapers_bucket_may_carry_small_calls_for_free() -> None:
    assert not floors.beats_the_line(1e-6, 4096, FOUR)


def test_one_host_has_no_line_to_beat() -> None:
    assert not floors.beats_the_line(1e-6, 64 * MIB, Topology(nodes=1, ranks_per_node=2))


def test_every_node_but_one_must_send_and_receive_the_sum() -> None:
    assert floors.fewest_bytes_on_wire(1000, nodes=4, calls=3) == 18000


def test_a_replayed_step_waits_for_whatever_the_line_cannot_hide() -> None:
    second = 1_000_000_000 // 8  # bytes that a line of 1 Gbit/s moves in a second, at 2 nodes once

    def line(payload: int) -> float:
        return floors.wire_floor(payload, nodes=2, rate_mbit=1000)

    assert floors.replay_floor([second, second], [0.0, 4.0], 4.0, line) == pytest.approx(1.0)
    assert floors.replay_floor([6 * second, second], [0.0, 4.0], 4.0, line) == pytest.approx(3.0)
    assert floors.replay_floor([second], [1.0], 4.0, line) == 0.0
