"""Calls of the CUDA driver that PyTorch has no names for.

They are made through ctypes, which lets other Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

# Wait until the number is equal; write it behind a fence for the whole system.
_EQUAL, _FENCED = 1, 0


@dataclass(frozen=True, slots=True)
class MemoryOperation:
    """What a stream does with the 32 bits at an address, when it comes there.

    It goes on when they have the value, or with `writes` sets them to it: who sees the
    value then sees all that the stream has written before.
    """

    address: int
    value: int
    writes: bool


def awaited(value: int, *addresses: int) -> tuple[MemoryOperation, ...]:
    """Until each has the value."""
    return tuple(MemoryOperation(each, value, writes=False) for each in addresses)


def written(value: int, *addresses: int) -> tuple[MemoryOperation, ...]:
    """To each the value."""
    return tuple(MemoryOperation(each, value, writes=True) for each in addresses)


class _Operation(ctypes.Structure):
    """One of a batch: CUstreamBatchMemOpParams, whose unions have one layout here."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("alias", ctypes.c_uint64),
        ("unused", ctypes.c_uint64),
    )


def on_memory(stream: int, *operations: MemoryOperation) -> None:
    """Let a stream do these in their order; the host does not wait.

    They take no SM, and a graph that captures them holds them as one node.
    """
    wait_32, write_32 = 1, 2
    batch = (_Operation * len(operations))(
        *(
            _Operation(
                kind=write_32 if each.writes else wait_32,
                address=each.address,
                value=each.value,
                flags=_FENCED if each.writes else _EQUAL,
            )
            for each in operations
        )
    )
    name = "cuStreamBatchMemOp_v2"
    check(
        getattr(driver(), name)(
            ctypes.c_void_p(stream),
            ctypes.c_uint(len(operations)),
            batch,
            ctypes.c_uint(0),
        ),
        name,
    )


def write_value(stream: int, address: int, value: int) -> None:
    """Let a stream write 32 bits when it comes there."""
    on_memory(stream, *written(value, address))


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
