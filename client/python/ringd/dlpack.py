"""Arrays by the DLPack protocol (``__dlpack__``), of versions 0 and 1, whoever has made them.

What an array's capsule holds was written by code of this process. It is checked where that is
possible: names, version, device, dimensions, types. Pointers are believed.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

from ringd.errors import InvalidArgumentError

CPU, CUDA = 1, 2
_DEVICES = {CPU: "the host's memory", CUDA: "a CUDA GPU", 3: "page-locked memory of the host"} | {
    7: "a Vulkan device",
    8: "a Metal device",
    10: "a ROCm GPU",
    13: "CUDA's managed memory",
    14: "a oneAPI device",
}
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"} | {
    10: "float8_e4m3fn",
    12: "float8_e5m2",
}
_VERSION = (1, 0)
_MOST_DIMENSIONS = 64
_IS_READ_ONLY, _IS_COPY = 1, 2


# As dlpack.h lays them out.
class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# Prototypes of our own: those of ctypes.pythonapi are everybody's.
_python: Any = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(("PyCapsule_SetName", _python))
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _python))
# Deleters may be called without the GIL, and take it themselves.
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# A capsule keeps a pointer to its name, and may outlive this module: these are never freed.
_USED = ctypes.create_string_buffer(b"used_dltensor")
_USED_VERSIONED = ctypes.create_string_buffer(b"used_dltensor_versioned")
for _name in (_USED, _USED_VERSIONED):
    _keep(_name)


class _Holder:
    """Tells the array's maker, once, when it goes, that nobody uses the memory any more."""

    def __init__(self, address: int, deleter: int | None) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        deleter, self._deleter = self._deleter, None
        # Python that ends may have ended the maker, too.
        if deleter and not sys.is_finalizing():
            _Deleter(deleter)(self._address)


class Exported(NamedTuple):
    """What an array has let us have."""

    address: int
    shape: tuple[int, ...]
    #: In elements; None: contiguous.
    strides: tuple[int, ...] | None
    #: "float32", "bfloat16", "float8_e4m3fn", ...
    type_name: str
    item_bytes: int
    read_only: bool
    #: The elements were copied for this export: what is written there nobody sees.
    is_copy: bool
    #: The memory may be used for as long as this lives.
    holder: object


def has_dlpack(array: object) -> bool:
    return hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")


def take(array: Any, name: str, stream: int | None, device: int = CUDA) -> Exported:
    """Has `array` export itself, to be used on `stream`, and checks what comes.

    name: of the tensor, for errors.
    stream: as the protocol has it (1: CUDA's default stream); None on the host.

    Raises ``InvalidArgumentError``: it is on another device, or its maker refuses.
    """
    # Before anything is exported: a library may have no streams there at all.
    _check_device(array.__dlpack_device__()[0], name, device)
    try:
        try:
            capsule = array.__dlpack__(stream=stream, max_version=_VERSION)
        except TypeError:  # its maker is older than version 1
            capsule = array.__dlpack__(stream=stream)
    except (BufferError, ValueError, TypeError, RuntimeError) as error:
        raise InvalidArgumentError(f"'{name}': {type(array).__name__} does not export it: {error}") from error
    if _is_valid(capsule, b"dltensor_versioned"):
        return _consume_versioned(capsule, name, device)
    if _is_valid(capsule, b"dltensor"):
        address = _pointer_of(capsule, b"dltensor")
        managed = _Managed.from_address(address)
        _set_name(capsule, ctypes.addressof(_USED))
        return _read(managed.tensor, 0, _Holder(address, managed.deleter), name, device)
    raise InvalidArgumentError(f"'{name}': its __dlpack__ gives no capsule, or one that was used before")


def _consume_versioned(capsule: object, name: str, device: int) -> Exported:
    address = _pointer_of(capsule, b"dltensor_versioned")
    managed = _ManagedVersioned.from_address(address)
    _set_name(capsule, ctypes.addressof(_USED_VERSIONED))
    # Only so much of another version is known: how it is given back.
    holder = _Holder(address, managed.deleter)
    if managed.major != _VERSION[0]:
        raise InvalidArgumentError(
            f"'{name}': it comes in version {managed.major}.{managed.minor} of DLPack; 0 and 1 are known"
        )
    return _read(managed.tensor, managed.flags, holder, name, device)


def _check_device(found: int, name: str, wanted: int) -> None:
    if found != wanted:
        where = _DEVICES.get(int(found), f"a device of DLPack's type {int(found)}")
        raise InvalidArgumentError(f"'{name}': the array is in {where}, not in {_DEVICES[wanted]}")


def _read(tensor: _Tensor, flags: int, holder: _Holder, name: str, device: int) -> Exported:
    _check_device(tensor.device.type, name, device)
    count = tensor.ndim
    if not 0 <= count <= _MOST_DIMENSIONS or (count > 0 and not tensor.shape):
        raise InvalidArgumentError(f"'{name}': its DLPack tensor has {count} dimensions, or no shape")
    shape = tuple(tensor.shape[i] for i in range(count))
    if any(extent < 0 for extent in shape):
        raise InvalidArgumentError(f"'{name}': its DLPack tensor has the shape {shape}")
    strides = tuple(tensor.strides[i] for i in range(count)) if count > 0 and tensor.strides else None
    kind = _KINDS.get(tensor.dtype.code)
    bits, lanes = tensor.dtype.bits, tensor.dtype.lanes
    if kind is None or lanes != 1 or bits % 8 != 0 or bits == 0:
        raise InvalidArgumentError(
            f"'{name}': elements of DLPack's type {tensor.dtype.code} of {bits} bits in {lanes} lanes can't "
            "be combined"
        )
    has_width = kind in ("int", "uint", "float", "bfloat", "complex")
    return Exported(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        strides,
        f"{kind}{bits}" if has_width else kind,
        bits // 8,
        bool(flags & _IS_READ_ONLY),
        bool(flags & _IS_COPY),
        holder,
    )
