"""Uses GPU 0 under MPS, as any trainer does; ends with a word of what is wrong otherwise.

mps_client.py LIBCUDA
"""

from __future__ import annotations

import ctypes
import sys

MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED


def main() -> None:
    driver = ctypes.CDLL(sys.argv[1])

    def call(function: str, *arguments: object) -> None:
        result = getattr(driver, function)(*arguments)
        if result != 0:
            raise SystemExit(f"{function} has failed: {result}")

    call("cuInit", ctypes.c_uint(0))
    device, context, enabled = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuDeviceGetAttribute", ctypes.byref(enabled), ctypes.c_int(MPS_ENABLED), device)
    if enabled.value != 1:
        raise SystemExit("the GPU is used without MPS")


if __name__ == "__main__":
    main()
