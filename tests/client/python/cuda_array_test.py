"""Arrays with __cuda_array_interface__, up to the C interface: addresses that nobody follows."""

from __future__ import annotations

from typing import Any

import pytest
import ringd
from ringd import cuda_array
from ringd.types import DataType, Memory, ReduceOp, TensorSpec


class Array:
    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (0x1000, False),
            "shape": (2, 3),
            "typestr": "<f4",
            "version": 3,
        } | interface


class Recorder:
    """What a context would have been asked for."""

    def __init__(self) -> None:
        self.specs: list[TensorSpec] = []
        self.calls: list[tuple[Any, ...]] = []

    def register(self, specs: list[TensorSpec]) -> list[int]:
        self.specs += specs
        return [7]

    def submit_on_stream(self, *arguments: int) -> int:
        self.calls.append(("submit", *arguments))
        return 41

    def stream_wait(self, *arguments: int) -> None:
        self.calls.append(("stream_wait", *arguments))

    def wait(self, *arguments: int) -> None:
        self.calls.append(("wait", *arguments))


def reduce(array: object, out: object | None = None, **changes: Any) -> tuple[Recorder, Any]:
    recorder = Recorder()
    arguments: dict[str, Any] = {
        "op": ReduceOp.SUM,
        "prescale": 1.0,
        "postscale": 1.0,
        "communicator": 0,
        "data_type": None,
        "stream": None,
    } | changes
    context: Any = recorder
    return recorder, cuda_array.all_reduce(context, array, "gradient", out, **arguments)


def test_an_array_becomes_a_description_and_a_submission_on_its_stream() -> None:
    recorder, operation = reduce(Array(stream=0x77), op=ReduceOp.MAX, prescale=2.0, communicator=3)
    assert recorder.specs == [
        TensorSpec(
            "gradient",
            data_type=DataType.FLOAT32,
            op=ReduceOp.MAX,
            shape=(2, 3),
            prescale=2.0,
            communicator=3,
            memory=Memory.DEVICE,
        )
    ]
    operation.stream_wait()
    operation.stream_wait(0x99)
    operation.wait()
    assert recorder.calls == [
        ("submit", 7, 0x1000, 0x1000, 0x77),
        ("stream_wait", 41, 0x77),
        ("stream_wait", 41, 0x99),
        ("wait", 41, -1),
    ]


@pytest.mark.parametrize(
    ("array", "out", "given", "expected"),
    [
        (None, None, None, 0),
        (1, None, None, 1),
        (None, 5, None, 5),
        (5, 5, None, 5),
        (5, 6, 8, 8),
    ],
)
def test_the_stream_is_what_is_given_or_what_the_arrays_say(
    array: int | None, out: int | None, given: int | None, expected: int
) -> None:
    destination = Array(data=(0x2000, False), stream=out)
    recorder, _ = reduce(Array(stream=array), destination, stream=given)
    assert recorder.calls == [("submit", 7, 0x1000, 0x2000, expected)]


@pytest.mark.parametrize(
    ("interface", "data_type", "expected"),
    [
        ({"typestr": "|u1"}, None, DataType.UINT8),
        ({"typestr": "|b1"}, None, DataType.BOOL),
        ({"typestr": "<i8"}, None, DataType.INT64),
        ({"typestr": "<f2"}, None, DataType.FLOAT16),
        ({"typestr": "<u2"}, DataType.BFLOAT16, DataType.BFLOAT16),
        ({"typestr": "<V2"}, DataType.BFLOAT16, DataType.BFLOAT16),
        ({"typestr": "|u1"}, DataType.FLOAT8_E5M2, DataType.FLOAT8_E5M2),
        ({"strides": (12, 4)}, None, DataType.FLOAT32),
        ({"shape": (1, 3), "strides": (400, 4)}, None, DataType.FLOAT32),
        ({"shape": (0, 3), "strides": (1, 1), "data": (0, False)}, None, DataType.FLOAT32),
        ({"shape": ()}, None, DataType.FLOAT32),
    ],
)
def test_types_and_contiguous_strides(
    interface: dict[str, Any], data_type: DataType | None, expected: DataType
) -> None:
    recorder, _ = reduce(Array(**interface), data_type=data_type)
    assert recorder.specs[0].data_type == expected


@pytest.mark.parametrize(
    ("interface", "changes", "words"),
    [
        ({"strides": (4, 8)}, {}, "not contiguous"),
        ({"data": (0x1000, True)}, {}, "read-only"),
        ({"typestr": ">f4"}, {}, "'>f4' can't be combined"),
        ({"typestr": "<c8"}, {}, "data_type="),
        ({"typestr": "nonsense"}, {}, "no type"),
        ({"typestr": "<f4"}, {"data_type": DataType.BFLOAT16}, "no BFLOAT16"),
        ({"typestr": ">f4"}, {"data_type": DataType.FLOAT32}, "'>f4' are no FLOAT32"),
        ({"typestr": "<c8"}, {"data_type": DataType.FLOAT64}, "'<c8' are no FLOAT64"),
        ({"typestr": "<i4"}, {"data_type": DataType.FLOAT32}, "'<i4' are no FLOAT32"),
        ({"mask": Array()}, {}, "mask"),
        ({"stream": 0}, {}, "stream 0"),
        ({"shape": None}, {}, "lacks something"),
    ],
)
def test_what_can_not_be_reduced_is_refused_with_the_name(
    interface: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="'gradient'") as refused:
        reduce(Array(**interface), **changes)
    assert words in str(refused.value)


def test_an_output_that_does_not_fit_is_refused() -> None:
    for out, words in (
        (Array(shape=(3, 2)), "differ"),
        (Array(typestr="<f8"), "differ"),
        (Array(data=(0x2000, True)), "read-only"),
        (Array(stream=9), "different streams"),
        (bytearray(8), "bytearray is no array on a GPU"),
    ):
        with pytest.raises(ringd.InvalidArgumentError, match=words):
            reduce(Array(stream=5), out)


def test_an_operation_keeps_its_arrays() -> None:
    array, out = Array(), Array()
    _, operation = reduce(array, out)
    assert operation._arrays == (array, out)
