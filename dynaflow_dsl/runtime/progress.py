"""What a device has come to, written by itself into memory of the host.

A device that hangs answers nobody: a thread that asks it for an event may wait for
the one that fills its queue. Reading memory asks nobody. A stream writes there when it
comes to the place (stream memory operations of the driver, which take no SM), also in a
captured graph, where constants are written again in each replay.
"""

from __future__ import annotations

import ctypes
import weakref
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


class _Memory:
    """Memory that a device writes into, and what it has been given to write.

    `marks` are the last mark of each row. It is `open` from the first thing that begins
    to the next mark, and `lent` once a capture of somebody else's has its address:
    nobody knows how long that graph is replayed.
    """

    def __init__(self) -> None:
        self.tensor = torch.zeros(2 * _STREAMS, dtype=torch.int32, pin_memory=True)
        self.numbers: Any = (ctypes.c_uint32 * (2 * _STREAMS)).from_address(
            self.tensor.data_ptr()
        )
        self.marks: dict[int, int] = {}
        self.open = False
        self.lent = False

    def is_settled(self) -> bool:
        """Whether the device has written all that it was given, and will no more."""
        return not (self.open or self.lent) and all(
            self.numbers[2 * row + 1] == number for row, number in self.marks.items()
        )


# Of progress that nobody has any more, by the number of the device. It is used again
# and never given back: what a device is yet to write would go into somebody else's.
_LEFT: dict[int, list[_Memory]] = {}


def _memory(index: int) -> _Memory:
    left = _LEFT.setdefault(index, [])
    for position, memory in enumerate(left):
        if memory.is_settled():
            del left[position]
            memory.tensor.zero_()
            memory.marks.clear()
            return memory
    return _Memory()


class DeviceProgress:
    """See `Progress`, of a CUDA device.

    Its memory goes to the next one of the device, when nobody has this one and the
    device is through with it. Without `collectives`, what begins leaves no trace, and
    takes no time of the device. In a capture that is somebody else's, a mark is done at
    once: nothing here knows when it is replayed. Raises OSError or RuntimeError where
    the driver cannot write so.
    """

    def __init__(self, device: torch.device, *, collectives: bool = True) -> None:
        assert device.index is not None
        self._index: int = device.index
        with torch.inference_mode(False), torch.cuda.device(device):
            self._memory = memory = _memory(self._index)
            self._place = device_pointer(memory.tensor.data_ptr())
            self._numbers = memory.numbers
            left = _LEFT[self._index]
            weakref.finalize(self, left.append, memory).atexit = False
            # Where it cannot be done it fails here.
            write_value(self._stream(), self._place, 0)
        self._collectives = collectives
        self._rows: dict[int, int] = {}
        # Rows of streams that have begun something, and how many marks each row has.
        self._used: set[int] = set()
        self._marks = memory.marks

    def begun(self, number: int) -> None:
        """See `Progress`."""
        if self._collectives and (row := self._row()) is not None:
            self._used.add(row)
            self._memory.open = True
            self._write(2 * row, number)

    def standing(self) -> list[int]:
        """See `Progress`."""
        return [int(self._numbers[2 * row]) for row in sorted(self._used)]

    def mark(self) -> Mark:
        """See `Progress`."""
        row = self._row()
        if torch.cuda.is_current_stream_capturing():
            self._memory.lent = True
            return _done
        if row is None:
            return _done
        number = self._marks[row] = (self._marks.get(row, 0) + 1) % _WIDTH
        # Streams have been joined.
        for used in self._used:
            self._write(2 * used, 0)
        self._write(2 * row + 1, number)
        self._memory.open = False
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
