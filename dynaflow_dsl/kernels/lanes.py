"""Work that a device does in order, beside other work: streams and what they do.

Flags are 32-bit numbers in memory that the host and all devices see. The front end of
the device writes them and waits for them (stream memory operations of the CUDA driver):
that takes no SM and no host, and a graph holds it as it holds a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dynaflow_dsl.runtime.driver import (
    MemoryOperation,
    check,
    device_pointer,
    driver,
    on_memory,
)


class Lane(Protocol):
    """One queue of a device. Nothing here waits for what it puts there."""

    def do(self, *steps: MemoryOperation) -> None:
        """Wait for flags and write them, in this order, behind all that came before."""

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Copy between tensors of one shape and dtype, both contiguous."""

    def add(self, pieces: Sequence[torch.Tensor], into: torch.Tensor) -> None:
        """The sum of two pieces and more, in their order; `into` may be one of two."""

    def mark(self) -> Any:
        """What has come so far, for other lanes to wait for."""

    def follow(self, mark: Any) -> None:
        """Go on when all before the mark of another lane is done."""


@dataclass(frozen=True, slots=True)
class StreamLane:
    """A stream of CUDA."""

    stream: torch.cuda.Stream

    def do(self, *steps: MemoryOperation) -> None:
        """See `Lane`; who sees a flag sees what was written before it."""
        on_memory(self.stream.cuda_stream, *steps)

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """See `Lane`; the copy engine's work where one of them is on the host."""
        if into.numel():
            with torch.cuda.stream(self.stream):
                into.copy_(source, non_blocking=True)

    def add(self, pieces: Sequence[torch.Tensor], into: torch.Tensor) -> None:
        """See `Lane`."""
        if into.numel():
            with torch.cuda.stream(self.stream):
                add_in_order(pieces, into)

    def mark(self) -> torch.cuda.Event:
        """See `Lane`."""
        event: torch.cuda.Event = self.stream.record_event()
        return event

    def follow(self, mark: torch.cuda.Event) -> None:
        """See `Lane`."""
        self.stream.wait_event(mark)


def add_in_order(pieces: Sequence[torch.Tensor], into: torch.Tensor) -> None:
    """The sum of two pieces and more, rounded once where they are of half precision."""
    if len(pieces) == 2:
        torch.add(*pieces, out=into)
    else:
        torch.sum(torch.stack(tuple(pieces)), 0, dtype=into.dtype, out=into)


class DriverPinning:
    """Memory of the host that the driver of CUDA pins, for all devices."""

    def register(self, address: int, size: int) -> int:
        """See `Pinning`."""
        portable_and_mapped = 3
        check(
            driver().cuMemHostRegister_v2(
                ctypes.c_void_p(address),
                ctypes.c_size_t(size),
                ctypes.c_uint(portable_and_mapped),
            ),
            "cuMemHostRegister",
        )
        return device_pointer(address)

    def unregister(self, address: int) -> None:
        """See `Pinning`."""
        check(
            driver().cuMemHostUnregister(ctypes.c_void_p(address)),
            "cuMemHostUnregister",
        )
