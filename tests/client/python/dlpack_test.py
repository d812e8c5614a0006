"""Arrays that export themselves by DLPack, up to the C interface. On the host NumPy's; those on a
GPU are addresses that nobody follows."""

from __future__ import annotations

import array as arrays
import ctypes
import gc
import weakref
from typing import Any

import numpy
import pytest
import ringd
from exported_array import CPU, IS_COPY, IS_READ_ONLY, ExportedArray
from ringd import dlpack
from ringd.types import DataType

from tests.client.python.cuda_array_test import Array, reduce

FLOAT, BFLOAT, COMPLEX, BOOL, E4M3, E5M2 = 2, 4, 5, 6, 10, 12
IS_EITHER = pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "old"])


def exported(**changes: Any) -> ExportedArray:
    return ExportedArray(0x1000, (2, 3), **changes)


@IS_EITHER
def test_an_array_is_submitted_on_the_stream_for_which_it_was_exported(versioned: bool) -> None:
    array, out = exported(versioned=versioned), ExportedArray(0x2000, (2, 3), versioned=versioned)
    recorder, operation = reduce(array, out, stream=0x77)
    assert recorder.calls == [("submit", 7, 0x1000, 0x2000, 0x77)]
    assert recorder.specs[0].shape == (2, 3)
    assert recorder.specs[0].data_type == DataType.FLOAT32
    assert array.streams == out.streams == [0x77]
    assert operation.stream == 0x77


def test_the_default_stream_has_the_number_1() -> None:
    # The protocol forbids 0.
    for stream in (None, 0):
        array = exported()
        recorder, _ = reduce(array, stream=stream)
        assert array.streams == [1]
        assert recorder.calls == [("submit", 7, 0x1000, 0x1000, 0)]


def test_an_array_with_a_stream_of_its_own_decides_for_both() -> None:
    out = ExportedArray(0x2000, (2, 3))
    recorder, _ = reduce(Array(stream=5), out)
    assert out.streams == [5]
    assert recorder.calls == [("submit", 7, 0x1000, 0x2000, 5)]


@IS_EITHER
def test_it_is_given_back_once_and_not_before_the_operation_goes(versioned: bool) -> None:
    array = exported(versioned=versioned)
    _, operation = reduce(array)
    gc.collect()
    assert array.deleted == 0
    del operation
    gc.collect()
    assert (array.deleted, len(array.exports)) == (1, 1)


def test_what_is_refused_after_its_export_is_given_back() -> None:
    array, out = exported(), exported(flags=IS_READ_ONLY)
    with pytest.raises(ringd.InvalidArgumentError):
        reduce(array, out)
    gc.collect()
    assert (array.deleted, out.deleted) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"code": 0, "bits": 8}, DataType.INT8),
        ({"code": 1, "bits": 8}, DataType.UINT8),
        ({"code": 0, "bits": 64}, DataType.INT64),
        ({"code": 1, "bits": 16}, DataType.UINT16),
        ({"code": FLOAT, "bits": 16}, DataType.FLOAT16),
        ({"code": FLOAT, "bits": 64}, DataType.FLOAT64),
        ({"code": BFLOAT, "bits": 16}, DataType.BFLOAT16),
        ({"code": BOOL, "bits": 8}, DataType.BOOL),
        ({"code": E4M3, "bits": 8}, DataType.FLOAT8_E4M3),
        ({"code": E5M2, "bits": 8}, DataType.FLOAT8_E5M2),
        ({"strides": (3, 1)}, DataType.FLOAT32),
    ],
)
def test_types_and_contiguous_strides(changes: dict[str, Any], expected: DataType) -> None:
    recorder, _ = reduce(exported(**changes))
    assert recorder.specs[0].data_type == expected


def test_an_offset_counts_and_a_type_may_be_given() -> None:
    recorder, _ = reduce(exported(byte_offset=64, code=1, bits=16), data_type=DataType.BFLOAT16)
    assert recorder.calls[0][2] == 0x1040
    assert recorder.specs[0].data_type == DataType.BFLOAT16


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": CPU}, "in the host's memory, not in a CUDA GPU"),
        ({"device_in_capsule": 10}, "in a ROCm GPU"),
        ({"device": 77}, "type 77"),
        ({"strides": (1, 2)}, "not contiguous"),
        ({"flags": IS_READ_ONLY}, "read-only"),
        ({"flags": IS_COPY}, "read-only"),
        ({"code": COMPLEX, "bits": 64}, "complex64' can't be combined"),
        ({"code": 99}, "type 99"),
        ({"lanes": 4}, "4 lanes"),
        ({"bits": 4}, "4 bits"),
        ({"ndim": 65}, "65 dimensions"),
        ({"ndim": -1}, "-1 dimensions"),
        ({"major": 2}, "version 2.0 of DLPack"),
    ],
)
def test_what_can_not_be_reduced_is_refused_with_the_name(changes: dict[str, Any], words: str) -> None:
    array = exported(**changes)
    with pytest.raises(ringd.InvalidArgumentError, match="'gradient'") as refused:
        reduce(array)
    assert words in str(refused.value)
    del refused
    gc.collect()
    assert array.deleted == len(array.exports)


def test_a_negative_extent_is_refused() -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="shape"):
        reduce(ExportedArray(0x1000, (-1, 3)))


def test_numpy_arrays_are_on_the_host_and_refused() -> None:
    with pytest.raises(ringd.InvalidArgumentError, match="in the host's memory"):
        reduce(numpy.zeros((2, 3), numpy.float32))


@pytest.mark.parametrize("words", [{"bfloat16": "<f2"}, {}], ids=["wrong word", "no word"])
def test_bfloat16_is_what_dlpack_says_whatever_the_other_interface_does(words: dict[str, str]) -> None:
    class LikePyTorch(ExportedArray):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"data": (0x1000, False), "shape": (2, 3), "typestr": words["bfloat16"], "version": 2}

    recorder, _ = reduce(LikePyTorch(0x1000, (2, 3), code=BFLOAT, bits=16), stream=5)
    assert recorder.specs[0].data_type == DataType.BFLOAT16


def test_float16_with_a_stream_of_its_own_is_taken_by_the_interface_that_names_it() -> None:
    class LikeCuPy(ExportedArray):
        __cuda_array_interface__ = {
            "data": (0x1000, False),
            "shape": (2, 3),
            "typestr": "<f2",
            "version": 3,
            "stream": 7,
        }

    recorder, _ = reduce(LikeCuPy(0x1000, (2, 3), bits=16))
    assert recorder.specs[0].data_type == DataType.FLOAT16
    assert recorder.calls == [("submit", 7, 0x1000, 0x1000, 7)]


@pytest.mark.parametrize("error", [BufferError("it needs a gradient"), ValueError("no such stream")])
def test_why_a_maker_does_not_export_is_told(error: Exception) -> None:
    class Refuses(ExportedArray):
        def __dlpack__(self, *, stream: int | None = None, **options: Any) -> object:
            raise error

    with pytest.raises(ringd.InvalidArgumentError, match=str(error)):
        reduce(Refuses(0x1000, (2,)))


def test_what_is_no_capsule_or_a_used_one_is_refused() -> None:
    array = exported()
    capsule = array.__dlpack__(stream=1)

    class Again(ExportedArray):
        def __dlpack__(self, **_: Any) -> object:
            return capsule

    again = Again(0x1000, (2, 3))
    reduce(again)
    with pytest.raises(ringd.InvalidArgumentError, match="used before"):
        reduce(again)
    capsule = object()
    with pytest.raises(ringd.InvalidArgumentError, match="no capsule"):
        reduce(again)


def test_numpy_exports_its_memory_until_it_is_given_back() -> None:
    array: Any = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    gone = weakref.ref(array)
    taken = dlpack.take(array, "x", None, dlpack.CPU)
    assert (taken.shape, taken.type_name, taken.item_bytes) == ((2, 3), "float32", 4)
    assert (taken.read_only, taken.is_copy) == (False, False)
    del array
    gc.collect()
    assert gone() is not None
    content = (ctypes.c_float * 6).from_address(taken.address)
    assert list(content) == list(arrays.array("f", range(6)))
    del taken
    gc.collect()
    assert gone() is None


def test_numpys_read_only_arrays_and_strides_are_seen() -> None:
    array: Any = numpy.zeros((4, 6), numpy.int16)
    array.flags.writeable = False
    taken = dlpack.take(array[:, ::2], "x", None, dlpack.CPU)
    assert taken.read_only
    assert taken.strides == (6, 2)
    assert taken.type_name == "int16"
