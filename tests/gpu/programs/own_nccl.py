"""NCCL in the trainer's own process, as a trainer without ringd has it: what ringd is measured
beside."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path

UNIQUE_ID_BYTES = 128
FLOAT32, SUM = 7, 0  # ncclFloat32, ncclSum
MEET_S = 30.0


class UniqueId(ctypes.Structure):
    _fields_ = [("content", ctypes.c_char * UNIQUE_ID_BYTES)]


class OwnNccl:
    """A communicator of all ranks, which meet in a folder that they share. Needs a CUDA context
    that is current."""

    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self._library = ctypes.CDLL(os.environ["RINGD_NCCL_LIBRARY"])
        unique = self._meet(rank, folder / "nccl-id")
        self._communicator = ctypes.c_void_p()
        self._call(
            "ncclCommInitRankConfig",
            ctypes.byref(self._communicator), ctypes.c_int(size), unique, ctypes.c_int(rank), None,
        )  # fmt: skip

    def all_reduce(self, tensors: Sequence[tuple[int, int]], stream: int) -> None:
        """Sums float32 tensors, (address, elements), in place, in one group on the stream."""
        self._call("ncclGroupStart")
        for address, count in tensors:
            self._call(
                "ncclAllReduce",
                ctypes.c_void_p(address), ctypes.c_void_p(address), ctypes.c_size_t(count),
                ctypes.c_int(FLOAT32), ctypes.c_int(SUM), self._communicator, ctypes.c_void_p(stream),
            )  # fmt: skip
        self._call("ncclGroupEnd")

    def destroy(self) -> None:
        self._call("ncclCommDestroy", self._communicator)

    def _meet(self, rank: int, file: Path) -> UniqueId:
        unique = UniqueId()
        if rank == 0:
            self._call("ncclGetUniqueId", ctypes.byref(unique))
            part = file.with_suffix(".part")
            part.write_bytes(bytes(unique))
            part.rename(file)
            return unique
        deadline = time.monotonic() + MEET_S
        while not file.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank 0 has not written {file} within {MEET_S} s")
            time.sleep(0.01)
        return UniqueId.from_buffer_copy(file.read_bytes())

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._library, function)(*arguments)
        if result != 0:
            self._library.ncclGetErrorString.restype = ctypes.c_char_p
            text = self._library.ncclGetErrorString(ctypes.c_int(result)).decode(errors="replace")
            raise RuntimeError(f"{function} has failed: {text}")
