"""What a device has come to, written by itself into memory of the host.

A device that hangs answers nobody: a thread that asks it for an event may wait for
the one that fills its queue. Reading memory asks nobody. A stream writes there when it
comes to the place (stream memory operations of the driver, which take no SM), also in a
captured graph, where constants are written again in each replay.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import torch

from dynaflow_dsl.runtime.driver import device_pointer, write_value

# What has been given to a device, and whether it is done.
Mark: TypeAlias = Callable[[], bool]


class Progress(Protocol):
    """How far a device has come; nothing here waits for it."""

    def begun(self, number: int) -> None:
        """Let the device say when the current stream comes here; no number is 0."""

    def standing(self) -> list[int]:
        """The number that each stream has come to last, since the last mark of it."""

    def mark(self) -> Mark:
        """What is done when all work is that the current stream has been given."""


# Two numbers of 32 bits for each stream: of what it has begun, and of marks.
_STREAMS = 512
_WIDTH = 1 << 32

# For good: a captured graph that somebody still replays writes into it.
_KEPT: list[torch.Tensor] = []


class DeviceProgress:
    """See `Progress`, of a CUDA device.

    Without `collectives`, what begins leaves no trace, and takes no time of the device.
    Raises OSError or RuntimeError where its driver cannot write so. In a capture that
    is somebody else's, a mark is done at once: nothing here knows when it is replayed.
    """

    def __init__(self, device: torch.device, *, collectives: bool = True) -> None:
        assert device.index is not None
        self._index: int = device.index
        with torch.inference_mode(False), torch.cuda.device(device):
            memory = torch.zeros(2 * _STREAMS, dtype=torch.int32, pin_memory=True)
            _KEPT.append(memory)
            self._place = device_pointer(memory.data_ptr())
            self._numbers: Any = (ctypes.c_uint32 * (2 * _STREAMS)).from_address(
                memory.data_ptr()
            )
            # Where it cannot be done it fails here.
            write_value(self._stream(), self._place, 0)
        self._collectives = collectives
        self._rows: dict[int, int] = {}
        # Rows of streams that have begun something, and how many marks each row has.
        self._used: set[int] = set()
        self._marks: dict[int, int] = {}

    def begun(self, number: int) -> None:
        """See `Progress`."""
        if self._collectives and (row := self._row()) is not None:
            self._used.add(row)
            self._write(2 * row, number)

    def standing(self) -> list[int]:
        """See `Progress`."""
        return [int(self._numbers[2 * row]) for row in sorted(self._used)]

    def mark(self) -> Mark:
        """See `Progress`."""
        row = self._row()
        if row is None or torch.cuda.is_current_stream_capturing():
            return _done
        number = self._marks[row] = (self._marks.get(row, 0) + 1) % _WIDTH
        # Streams have been joined.
        for used in self._used:
            self._write(2 * used, 0)
        self._write(2 * row + 1, number)
        # Numbers come again after some months.
        return lambda: (self._numbers[2 * row + 1] - number) % _WIDTH < _WIDTH // 2

    def _stream(self) -> int:
        # The number alone: making an object of the stream takes microseconds.
        return int(torch._C._cuda_getCurrentRawStream(self._index))

    def _row(self) -> int | None:
        """The row of the current stream; None where there are more than have one."""
        stream = self._stream()
        row = self._rows.setdefault(stream, len(self._rows))
        return row if row < _STREAMS else None

    def _write(self, place: int, number: int) -> None:
        # The default stream has one number on all devices.
        with torch.cuda.device(self._index):
            stream = self._stream()
            write_value(stream, self._place + 4 * place, number)


def _done() -> bool:
    return True
