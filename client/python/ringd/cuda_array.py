"""Arrays on a GPU, whoever has made them (CuPy, Numba, PyTorch, ...), as operations take them.

An array is an object with ``__cuda_array_interface__``, of any version up to 3, or else one that
exports itself by DLPack (``__dlpack__``), which has words for bfloat16 and float8, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ringd import dlpack
from ringd.errors import InvalidArgumentError
from ringd.types import DataType, Memory, ReduceOp, TensorSpec

if TYPE_CHECKING:
    from ringd.context import Context

# By kind and bytes. NumPy's type strings have none for bfloat16 and float8.
_DATA_TYPES = {
    "u1": DataType.UINT8,
    "i1": DataType.INT8,
    "u2": DataType.UINT16,
    "i2": DataType.INT16,
    "u4": DataType.UINT32,
    "i4": DataType.INT32,
    "u8": DataType.UINT64,
    "i8": DataType.INT64,
    "f2": DataType.FLOAT16,
    "f4": DataType.FLOAT32,
    "f8": DataType.FLOAT64,
    "b1": DataType.BOOL,
}
# DLPack's words, as type strings where there are some.
_TYPE_STRINGS = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    **{f"{kind}{8 * size}": f"<{kind[0]}{size}" for kind in ("uint", "int", "float") for size in (2, 4, 8)},
}
_NARROW_TYPES = {
    "bfloat16": DataType.BFLOAT16,
    "float8_e4m3fn": DataType.FLOAT8_E4M3,
    "float8_e5m2": DataType.FLOAT8_E5M2,
}
_NARROW = frozenset(_NARROW_TYPES.values())
# By DLPack's numbers for streams 0 could be either of CUDA's default streams; this is the one that
# CUDA has for 0.
_DEFAULT_STREAM = 1
_BYTES = {data_type: int(code[1:]) for code, data_type in _DATA_TYPES.items()} | {
    DataType.BFLOAT16: 2,
    DataType.FLOAT8_E4M3: 1,
    DataType.FLOAT8_E5M2: 1,
}


class _Array(NamedTuple):
    """What its interface says."""

    address: int
    shape: tuple[int, ...]
    type_string: str
    read_only: bool
    item_bytes: int
    #: Of the memory; None: the array itself.
    holder: object = None


class DeviceOperation:
    """An operation on arrays, which it keeps until it goes itself.

    Thread safety: any thread may call anything; ``wait`` ends it for all.
    """

    def __init__(
        self, context: Context, number: int, stream: int, arrays: tuple[object, ...], held: object
    ) -> None:
        #: As ``Context.wait_all`` takes it.
        self.number = number
        #: On which it was submitted.
        self.stream = stream
        self._context = context
        self._arrays = arrays
        self._held = held

    def stream_wait(self, stream: int | None = None) -> None:
        """What is put on `stream` from now on finds the result; ``wait`` is still to be called.
        Where this process launches (``ringctl comms`` says so), it blocks until the operation has
        been launched, so until all ranks have submitted it, for 5 s at most; on a GPU without
        stream memory operations until it has ended; else not.

        stream: its address. Default: that on which the operation was submitted.
        """
        self._context.stream_wait(self.number, self.stream if stream is None else stream)

    def wait(self, timeout_ms: int = -1) -> None:
        """Blocks until the operation has ended, and raises what went wrong. Without
        ``stream_wait`` before, the result is in its array then."""
        self._context.wait(self.number, timeout_ms)


def all_reduce(
    context: Context,
    array: object,
    name: str,
    out: object | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    communicator: int,
    data_type: DataType | None,
    stream: int | None,
) -> DeviceOperation:
    """``Context.device_all_reduce``."""
    given = [array] if out is None else [array, out]
    interfaces = [_interface_of(one, name) for one in given]
    ready_on = _stream_of(interfaces, name) if stream is None else stream
    read = [
        _read(one, interface, name) if interface is not None else _take(one, name, ready_on)
        for one, interface in zip(given, interfaces, strict=True)
    ]
    source, destination = read[0], read[-1]
    if destination.read_only:
        raise InvalidArgumentError(f"'{name}': the result would be written to an array that is read-only")
    if destination[1:3] != source[1:3]:
        raise InvalidArgumentError(
            f"'{name}': array and out differ: {_described(source)} and {_described(destination)}"
        )
    chosen = _data_type_of(source, name, data_type)
    spec = TensorSpec(
        name,
        data_type=chosen,
        op=op,
        shape=source.shape,
        prescale=prescale,
        postscale=postscale,
        communicator=communicator,
        memory=Memory.DEVICE,
    )
    (registration,) = context.register([spec])
    number = context.submit_on_stream(registration, source.address, destination.address, ready_on)
    return DeviceOperation(context, number, ready_on, (array, out), tuple(read))


def _described(array: _Array) -> str:
    return f"shape {array.shape} of '{array.type_string}'"


def _interface_of(array: object, name: str) -> Mapping[str, Any] | None:
    """Its ``__cuda_array_interface__``; None: it is to be taken by DLPack."""
    try:
        interface: Mapping[str, Any] = array.__cuda_array_interface__  # type: ignore[attr-defined]
        # Some versions of PyTorch, which names no stream, give bfloat16 the word of float16; DLPack
        # has one for each.
        is_unclear = interface.get("typestr") == "<f2" and interface.get("stream") is None
        if is_unclear and dlpack.has_dlpack(array):
            return None
    except (AttributeError, KeyError):  # PyTorch's own before 2.5 has no word for bfloat16 at all
        if dlpack.has_dlpack(array):
            return None
        raise InvalidArgumentError(
            f"'{name}': {type(array).__name__} is no array on a GPU: it has neither "
            "__cuda_array_interface__ nor __dlpack__"
        ) from None
    return interface


def _take(array: object, name: str, ready_on: int) -> _Array:
    """By DLPack. Its maker has `ready_on` wait for what writes it."""
    found = dlpack.take(array, name, ready_on or _DEFAULT_STREAM)
    _check_contiguous(name, found.shape, found.strides, 1)
    type_string = _TYPE_STRINGS.get(found.type_name, found.type_name)
    # What is written to a copy nobody sees.
    read_only = found.read_only or found.is_copy
    return _Array(found.address, found.shape, type_string, read_only, found.item_bytes, found.holder)


def _read(array: object, interface: Mapping[str, Any], name: str) -> _Array:
    try:
        address, read_only = interface["data"]
        shape = tuple(int(extent) for extent in interface["shape"])
        type_string = str(interface["typestr"])
        strides = interface.get("strides")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"'{name}': its __cuda_array_interface__ lacks something, or is wrong: {error!r}"
        ) from None
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"'{name}': arrays with a mask can't be combined")
    item_bytes = _item_bytes(type_string, name)
    _check_contiguous(name, shape, None if strides is None else tuple(strides), item_bytes)
    return _Array(int(address or 0), shape, type_string, bool(read_only), item_bytes)


def _item_bytes(type_string: str, name: str) -> int:
    try:
        return int(type_string[2:])
    except ValueError:
        raise InvalidArgumentError(f"'{name}': '{type_string}' is no type of elements") from None


def _check_contiguous(name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, item: int) -> None:
    """strides: in what an element has `item` of."""
    if strides is not None and not _is_contiguous(shape, strides, item):
        raise InvalidArgumentError(
            f"'{name}': its elements are not contiguous (shape {shape}, strides {strides}): copy it first"
        )


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> bool:
    if 0 in shape:
        return True
    expected = item_bytes
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _data_type_of(array: _Array, name: str, given: DataType | None) -> DataType:
    if given is not None:
        wanted = DataType(given)
        if _BYTES[wanted] != array.item_bytes or not _may_be(array.type_string, wanted):
            raise InvalidArgumentError(f"'{name}': elements of '{array.type_string}' are no {wanted.name}")
        return wanted
    if array.type_string in _NARROW_TYPES:
        return _NARROW_TYPES[array.type_string]
    found = _DATA_TYPES.get(array.type_string[1:])
    if found is None or (array.type_string[0] not in "<|=" and array.item_bytes > 1):
        raise InvalidArgumentError(
            f"'{name}': elements of '{array.type_string}' can't be combined; data_type= says what they are"
        )
    return found


def _may_be(type_string: str, wanted: DataType) -> bool:
    """Whether elements of `wanted`'s size may be some: narrow types have no words of their own."""
    if type_string in _NARROW_TYPES:
        return _NARROW_TYPES[type_string] == wanted
    order, kind, code = type_string[0], type_string[1], type_string[1:]
    if order == ">" and code[1:] != "1":
        return False
    return _DATA_TYPES.get(code) == wanted or kind == "V" or (kind in "uif" and wanted in _NARROW)


def _stream_of(interfaces: list[Mapping[str, Any] | None], name: str) -> int:
    """On which all are ready; CUDA's default stream, if none says one."""
    said = [interface.get("stream") for interface in interfaces if interface is not None]
    if 0 in said:
        # The interface forbids it, as it could be either of CUDA's default streams.
        raise InvalidArgumentError(f"'{name}': its __cuda_array_interface__ says stream 0; 1 or 2 is meant")
    streams = {stream for stream in said if stream is not None}
    if len(streams) > 1:
        raise InvalidArgumentError(
            f"'{name}': array and out are used on different streams, {sorted(streams)}: let one wait for the "
            "other, and give it as stream="
        )
    return int(streams.pop()) if streams else 0
