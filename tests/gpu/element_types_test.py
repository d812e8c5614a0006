"""The elements that tests/gpu/run compares with, beside PyTorch's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from ringd import DataType, ReduceOp

TORCH_TYPES = {
    DataType.UINT8: torch.uint8,
    DataType.INT8: torch.int8,
    DataType.INT16: torch.int16,
    DataType.INT32: torch.int32,
    DataType.INT64: torch.int64,
    DataType.FLOAT16: torch.float16,
    DataType.BFLOAT16: torch.bfloat16,
    DataType.FLOAT32: torch.float32,
    DataType.FLOAT64: torch.float64,
    DataType.FLOAT8_E4M3: torch.float8_e4m3fn,
    DataType.FLOAT8_E5M2: torch.float8_e5m2,
}


@pytest.fixture(scope="module")
def types() -> ModuleType:
    path = Path(__file__).parent / "programs" / "element_types.py"
    spec = importlib.util.spec_from_file_location("element_types", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("data_type", TORCH_TYPES, ids=lambda data_type: data_type.name)
def test_what_ranks_give_and_what_comes_out_is_what_pytorch_stores(
    types: ModuleType, data_type: DataType
) -> None:
    for op in ReduceOp:
        rows = [types.pattern(data_type, op, rank)[:7] for rank in range(4)]
        for values in [*rows, types.combined(data_type, op, 4)[:7]]:
            stored = torch.tensor(values, dtype=torch.float64).to(TORCH_TYPES[data_type])
            assert stored.to(torch.float64).tolist() == values, (op, values)
            assert types.encode(data_type, values) == bytes(stored.view(torch.uint8).tolist())


def test_sums_of_integers_wrap(types: ModuleType) -> None:
    total = types.combined(DataType.INT8, ReduceOp.SUM, 2)[-1]
    assert total == 127 + 126
    assert types.encode(DataType.INT8, [total]) == bytes([253])


def test_elements_are_repeated_to_the_count(types: ModuleType) -> None:
    assert types.repeat(b"abcdef", 2, 5) == b"abcdefabcd"


def test_what_a_type_can_not_hold_is_an_error(types: ModuleType) -> None:
    with pytest.raises(ValueError, match="no exact number"):
        types.encode(DataType.FLOAT8_E5M2, [9.0])
