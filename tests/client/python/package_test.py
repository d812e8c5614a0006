"""The installed package, as far as it goes without a ringd."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import ringd
import ringd.torch as hvd
import torch
from ringd import _ringd
from ringd.torch import job as jobs
from ringd.torch.gradient_reduction import names_of
from ringd.torch.job import Job
from ringd.torch.names import AutomaticNames

ROOT = Path(__file__).resolve().parents[3]
HEADER = (ROOT / "client/ringd.h").read_text()


def constants(prefix: str, names: set[str]) -> dict[str, int]:
    """The header's constants of these names."""
    found = re.findall(rf"RINGD_({'|'.join(sorted(names))}) =\s*(\d+)", HEADER)
    assert {name for name, _ in found} == names, prefix
    return {name: int(number) for name, number in found}


@pytest.mark.parametrize("enum", [ringd.DataType, ringd.ReduceOp, ringd.CollectiveKind])
def test_numbers_are_those_of_the_header(enum: type[ringd.DataType]) -> None:
    ours = {member.name: int(member) for member in enum}
    assert constants(enum.__name__, set(ours)) == ours


def test_every_status_of_the_header_has_its_error() -> None:
    body = re.search(r"enum \{\s*RINGD_OK = 0,(.*?)\};", HEADER, re.DOTALL)
    assert body is not None
    statuses = {int(number) for number in re.findall(r"RINGD_\w+ =\s*(\d+)", body.group(1))}
    assert set(ringd.ERROR_TYPES) == statuses
    assert all(error.status == status for status, error in ringd.ERROR_TYPES.items())


def test_the_package_has_the_release_of_the_library() -> None:
    text = (ROOT / "client/core/attach/library_version.h").read_text()
    assert f'"{ringd.__version__}"' in text


def test_no_ringd_at_the_socket_is_an_error_that_names_it(tmp_path: Path) -> None:
    socket = tmp_path / "none.sock"
    with pytest.raises(ringd.NotFoundError, match=r"none\.sock"):
        ringd.Context(socket=str(socket), rank=0, size=1, local_rank=0, local_size=1)
    with pytest.raises(LookupError):
        hvd.init(socket=str(socket), rank=0, size=1, local_rank=0, local_size=1)
    assert not hvd.is_initialized()


def test_impossible_places_are_refused() -> None:
    with pytest.raises(TypeError, match="all of"):
        ringd.Context(rank=0)
    with pytest.raises(ringd.InvalidArgumentError, match="rank 5 of 2"):
        ringd.Context(rank=5, size=2, local_rank=0, local_size=1)
    with pytest.raises(ValueError, match="start_timeout"):
        ringd.Context(start_timeout=0)
    for weight in (0, 101):
        with pytest.raises(ValueError, match="weight"):
            ringd.Context(weight=weight)


def test_contexts_are_made_by_opening_only() -> None:
    with pytest.raises(TypeError):
        _ringd.Context()


def test_everything_says_when_init_is_missing() -> None:
    for call in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.cross_size,
        hvd.barrier,
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.broadcast(torch.ones(1), 0),
        lambda: hvd.empty(3),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([torch.ones(1)], lr=0.1)),
    ):
        with pytest.raises(ringd.FailedPreconditionError, match=r"init\(\)"):
            call()
    hvd.shutdown()  # without init: nothing to do


def test_shutdown_while_init_waits_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a signal's handler, which runs in init's wait for other ranks."""

    class Waiting:
        def __init__(self, **_: object) -> None:
            hvd.shutdown()
            raise ringd.DeadlineExceededError("rank 1 has not come")

    monkeypatch.setattr(jobs, "Context", Waiting)
    with pytest.raises(ringd.DeadlineExceededError):
        hvd.init()
    assert not hvd.is_initialized()


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ((3, 4), (3, 4)),
        (((3, 4),), (3, 4)),
        ((numpy.int64(3), 4), (3, 4)),
        ((numpy.int64(3),), (3,)),
        ((torch.Size([2]),), (2,)),
        ((numpy.array([2, 3]),), (2, 3)),
        ((), ()),
    ],
)
def test_any_integer_is_an_extent(
    job: Job, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(jobs, "_job", job)
    assert hvd.empty(*arguments).shape == shape
    with pytest.raises(TypeError):
        hvd.empty(3, 4.0)  # type: ignore[arg-type]


def test_op_and_average_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="not both"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)


def test_automatic_names_count_by_kind_and_come_again() -> None:
    names = AutomaticNames()
    assert [names.next("allreduce"), names.next("broadcast"), names.next("allreduce")] == [
        "allreduce.noname.0",
        "broadcast.noname.0",
        "allreduce.noname.1",
    ]
    rest = [names.next("allreduce") for _ in range(AutomaticNames.CYCLE)]
    assert len(set(rest)) == AutomaticNames.CYCLE
    assert rest[-1] == "allreduce.noname.1"


@pytest.mark.parametrize("members", [1, 10, 100, 5000])
def test_groups_without_names_make_a_bounded_number_of_them(members: int) -> None:
    names = AutomaticNames()
    made = {names.next("grouped_allreduce", members) for _ in range(3000)}
    assert len(made) >= AutomaticNames.LEAST_OF_GROUPS
    most = max(AutomaticNames.CYCLE, AutomaticNames.LEAST_OF_GROUPS * members)
    assert len(made) * members <= most


@pytest.mark.parametrize("average", [hvd.Max, "loss", 1])
def test_an_operator_or_a_name_in_the_place_of_average_is_refused(average: Any) -> None:
    with pytest.raises(TypeError, match="op=hvd.Max"):
        hvd.allreduce(torch.ones(1), average)


def test_parameters_names_are_checked() -> None:
    first, second = torch.ones(1), torch.ones(1)
    assert names_of([first, second], None) == {first: "parameter.0", second: "parameter.1"}
    assert names_of([first], [("a", first), ("b", second)]) == {first: "a", second: "b"}
    with pytest.raises(ValueError, match="'a' more than once"):
        names_of([first], [("a", first), ("a", second)])
    with pytest.raises(ValueError, match="lacks 1 of the optimizer's 2"):
        names_of([first, second], [("a", first)])
    with pytest.raises(ValueError, match="pairs"):
        names_of([first], [first])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
        ({"gradient_predivide_factor": 0.0}, "gradient_predivide_factor"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "Average"),
    ],
)
def test_impossible_options_of_an_optimizer_are_refused(options: dict, message: str) -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ValueError, match=message):
        hvd.DistributedOptimizer(optimizer, **options)


def test_an_optimizers_arguments_have_horovods_order() -> None:
    names = list(inspect.signature(hvd.DistributedOptimizer).parameters)
    assert names == [
        "optimizer", "named_parameters", "compression", "backward_passes_per_step", "op",
        "gradient_predivide_factor", "num_groups", "groups", "sparse_as_dense", "process_set",
    ]  # fmt: skip


def test_compression_shortens_longer_floats_only() -> None:
    for compression, short in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        for dtype, expected in (
            (torch.float32, short),
            (torch.float64, short),
            (torch.float16, torch.float16),
            (torch.int64, torch.int64),
        ):
            compressed, context = compression.compress(torch.ones(3, dtype=dtype))
            assert compressed.dtype == expected
            assert compression.decompress(compressed, context).dtype == dtype


def test_names_that_only_horovod_has_say_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"no Adasum, which Horovod has: use op=hvd\.Average"):
        _ = hvd.Adasum  # type: ignore[attr-defined]
    assert not hasattr(hvd, "allgather")
    with pytest.raises(ImportError, match="has no allgather, which Horovod has: this release has"):
        from ringd.torch import allgather  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'alreduce'"):
        from ringd.torch import alreduce  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute 'alreduce'"):
        _ = hvd.alreduce  # type: ignore[attr-defined]
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert not any((hvd.mpi_enabled(), hvd.gloo_enabled(), hvd.rocm_built()))
    assert all((hvd.nccl_built(), hvd.cuda_built()))
