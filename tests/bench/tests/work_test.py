"""Work lines, and how the Python drivers read them."""

from __future__ import annotations

from pathlib import Path

from control import contribution, parse_work, plan_buckets
from harness.work import (
    MIB,
    Batch,
    Way,
    equal_tensors,
    model_gradients,
    one_tensor,
    payload_bytes,
    work_line,
)

BATCH = Batch(inner=3, samples=5, warmup=1, verify=True)


def test_a_driver_reads_what_the_harness_wrote(tmp_path: Path) -> None:
    way = Way("learned", "async", memory="arena", wait="block")
    work = parse_work(work_line(7, equal_tensors(3, 4096), "f32", way, BATCH, tmp_path))
    assert (work.id, work.dtype, work.mode, work.memory) == (7, "f32", "async", "arena")
    assert (work.inner, work.samples, work.warmup, work.verify) == (3, 5, 1, True)
    assert work.counts == [1024] * 3
    assert work.ready == []
    assert work.bucket_bytes == 64 * MIB


def test_readiness_travels_in_seconds(tmp_path: Path) -> None:
    gradients = model_gradients("vgg16", backward_seconds=0.25)
    work = parse_work(work_line(1, gradients, "f32", Way("gloo"), BATCH, tmp_path))
    assert len(work.ready) == len(work.counts) == 32
    assert work.ready == sorted(work.ready)
    assert 0.2 < work.ready[-1] <= 0.25


def test_a_work_line_is_short_enough_for_the_c_drivers(tmp_path: Path) -> None:
    line = work_line(1, model_gradients("resnet101", 0.3), "f32", Way("gloo"), BATCH, tmp_path)
    assert len(line) < 2048
    assert line.endswith("\n")


def test_the_published_gradients_have_their_published_sizes() -> None:
    expected = {"inception_v3": (190, 95.3e6), "resnet101": (314, 178.2e6), "vgg16": (32, 553.4e6)}
    for model, (number, payload) in expected.items():
        gradients = model_gradients(model)
        assert len(gradients.counts) == number
        assert abs(payload_bytes(gradients, "f32") - payload) < 0.1e6


def test_one_tensor_has_so_many_bytes_in_every_type() -> None:
    for dtype in ("f32", "bf16", "f8e4m3"):
        assert payload_bytes(one_tensor(MIB, dtype), dtype) == MIB


def test_buckets_are_consecutive_and_a_large_tensor_is_one_by_itself() -> None:
    assert plan_buckets([10, 10, 100, 10], width=4, limit=80) == [(0, 2), (2, 3), (3, 4)]
    assert plan_buckets([1, 1, 1], width=4, limit=80) == [(0, 3)]
    assert plan_buckets([], width=4, limit=80) == []


def test_contributions_tell_ranks_and_places_apart() -> None:
    assert contribution(0, 0) != contribution(1, 0)
    assert contribution(0, 0) != contribution(0, 1)
