"""An array that exports itself by DLPack, as CuPy's and others' do, over memory of anybody's. Its
capsules can be made wrong."""

from __future__ import annotations

import ctypes
from typing import Any

CPU, CUDA = 1, 2
FLOAT = 2
IS_READ_ONLY, IS_COPY = 1, 2

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_VERSIONED, _OLD = b"dltensor_versioned", b"dltensor"
# Laid out as dlpack.h has it, by hand: what is tested has structures of its own.
_TENSOR_BYTES = 48
_VERSIONED_HEAD = 32


class ExportedArray:
    """changes: of the tensor's fields: `code`, `bits`, `lanes`, `ndim`, `strides`, `byte_offset`,
    `device`, `device_in_capsule`, `flags`, `major`. Elements are float32 if nothing is said."""

    def __init__(
        self, address: int, shape: tuple[int, ...], *, versioned: bool = True, **changes: Any
    ) -> None:
        self._fields = {"code": FLOAT, "bits": 32, "lanes": 1, "byte_offset": 0, "device": CUDA} | changes
        self._address = address
        self._shape = shape
        self._versioned = versioned
        #: With which each export was asked for.
        self.streams: list[int | None] = []
        self.deleted = 0
        #: What was exported, by address; and what that refers to.
        self.exports: dict[int, object] = {}
        self._kept: list[object] = []
        self._deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete)

    def _delete(self, address: int) -> None:
        assert address in self.exports
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._fields["device"], 0

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> object:
        if options and not self._versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        fields = self._fields
        shape = (ctypes.c_int64 * len(self._shape))(*self._shape)
        strides = fields.get("strides")
        steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        head = _VERSIONED_HEAD if self._versioned else 0
        block = (ctypes.c_uint8 * (head + _TENSOR_BYTES + 16))()
        self._kept += [shape, steps]
        at = ctypes.addressof(block)
        self.exports[at] = block

        def put(kind: Any, offset: int, value: Any) -> None:
            kind.from_address(at + offset).value = value

        deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value
        if self._versioned:
            put(ctypes.c_uint32, 0, fields.get("major", 1))
            put(ctypes.c_void_p, 16, deleter)
            put(ctypes.c_uint64, 24, fields.get("flags", 0))
        else:
            put(ctypes.c_void_p, _TENSOR_BYTES + 8, deleter)
        put(ctypes.c_void_p, head, self._address)
        put(ctypes.c_int32, head + 8, fields.get("device_in_capsule", fields["device"]))
        put(ctypes.c_int32, head + 16, fields.get("ndim", len(self._shape)))
        put(ctypes.c_uint8, head + 20, fields["code"])
        put(ctypes.c_uint8, head + 21, fields["bits"])
        put(ctypes.c_uint16, head + 22, fields["lanes"])
        put(ctypes.c_void_p, head + 24, ctypes.addressof(shape) if self._shape else None)
        put(ctypes.c_void_p, head + 32, None if steps is None else ctypes.addressof(steps))
        put(ctypes.c_uint64, head + 40, fields["byte_offset"])
        # Without a destructor: whoever consumes it has to delete it.
        return _new_capsule(at, _VERSIONED if self._versioned else _OLD, None)
