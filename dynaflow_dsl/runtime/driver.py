"""Calls of the CUDA driver that PyTorch has no names for.

They are made through ctypes, which lets other Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

# Wait until the number is equal; write it behind a fence for the whole system.
_EQUAL, _FENCED = 1, 0


def wait_value(stream: int, address: int, value: int) -> None:
    """Let a stream wait until 32 bits at an address have a value; the host does not."""
    _memory_operation("cuStreamWaitValue32_v2", stream, address, value, _EQUAL)


def write_value(stream: int, address: int, value: int) -> None:
    """Let a stream write 32 bits when it comes there; a graph captures that.

    Who sees the value sees all that the stream has written before it.
    """
    _memory_operation("cuStreamWriteValue32_v2", stream, address, value, _FENCED)


def _memory_operation(
    name: str, stream: int, address: int, value: int, kind: int
) -> None:
    check(
        getattr(driver(), name)(
            ctypes.c_void_p(stream),
            ctypes.c_uint64(address),
            ctypes.c_uint32(value),
            ctypes.c_uint(kind),
        ),
        name,
    )


def device_pointer(address: int) -> int:
    """Where devices see pinned memory of the host."""
    seen = ctypes.c_uint64()
    check(
        driver().cuMemHostGetDevicePointer_v2(
            ctypes.byref(seen), ctypes.c_void_p(address), ctypes.c_uint(0)
        ),
        "cuMemHostGetDevicePointer",
    )
    return seen.value


def check(result: int, name: str) -> None:
    """Raise RuntimeError with the driver's word for a call that has failed."""
    if result == 0:
        return
    text = ctypes.c_char_p()
    driver().cuGetErrorString(result, ctypes.byref(text))
    said = text.value.decode() if text.value else "unknown error"
    raise RuntimeError(f"{name} of the CUDA driver: {said} (error {result})")


@cache
def driver() -> Any:
    """The driver's library. Raises OSError where there is none."""
    name = "nvcuda.dll" if hasattr(ctypes, "WinDLL") else "libcuda.so.1"
    return ctypes.CDLL(name)
