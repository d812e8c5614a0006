"""The lint of kinds must notice a room that asks for one, and leave alone those that may."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.operation_kinds import check_file

ASKS = "  if (meta.kind == CollectiveKind::kBarrier) return 0;\n"


@pytest.mark.parametrize("path", ["daemon/execution/bucket.cc", "client/core/context.cc", "backends/ucx/x.h"])
def test_a_room_that_asks_for_a_kind_is_named(path: str) -> None:
    problems = list(check_file(Path(path), f"// A comment.\n{ASKS}"))
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}:2: CollectiveKind::kBarrier")


@pytest.mark.parametrize(
    "path",
    [
        "proto/operations/operation_traits.h",
        "backends/collectives/operation.cc",
        "tests/backends/contract.cc",
    ],
)
def test_the_table_and_the_primitives_may_name_kinds(path: str) -> None:
    assert not list(check_file(Path(path), ASKS))


def test_a_default_is_no_question() -> None:
    text = "  CollectiveKind kind = CollectiveKind::kAllReduce;\n"
    assert not list(check_file(Path("daemon/schedule/protocol/tensor_meta.h"), text))
