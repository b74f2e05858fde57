"""Streams of a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from dynaflow_dsl.runtime.streams import Streams


class CurrentStream:
    """`main`: whatever stream the step is called on."""

    __slots__ = ("device", "name")

    def __init__(self, device: torch.device) -> None:
        self.name = "main"
        self.device = device

    def __enter__(self) -> None:
        """Nothing: outside the other streams' blocks this is the current one."""

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass

    def record(self) -> torch.cuda.Event:
        """An event after all work so far on the current stream."""
        event: torch.cuda.Event = torch.cuda.current_stream(self.device).record_event()
        return event

    def wait(self, event: torch.cuda.Event) -> None:
        """Let the current stream wait; the host does not."""
        torch.cuda.current_stream(self.device).wait_event(event)


class SideStream:
    """A stream beside main. It is made once per device and name, and shared."""

    __slots__ = ("_before", "name", "stream")

    def __init__(self, name: str, stream: torch.cuda.Stream) -> None:
        self.name = name
        self.stream = stream
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = torch.cuda.current_stream(self.stream.device)
        torch.cuda.set_stream(self.stream)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        torch.cuda.set_stream(self._before)

    def record(self) -> torch.cuda.Event:
        """An event after all work so far on this stream."""
        event: torch.cuda.Event = self.stream.record_event()
        return event

    def wait(self, event: torch.cuda.Event) -> None:
        """Let this stream wait; the host does not."""
        self.stream.wait_event(event)


class CudaStreams(Streams):
    """Streams of one device; a step inside a capture ends at main."""

    def join(self) -> None:
        """Let main wait for every stream, then every stream for main.

        While capturing, the second half is left out: nothing follows on a side stream,
        and its last work must lead back to main.
        """
        for stream in self.others:
            self.main.wait(stream.record())
        if self.others and not torch.cuda.is_current_stream_capturing():
            done = self.main.record()
            for stream in self.others:
                stream.wait(done)


@cache
def _side_stream(index: int, name: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]


def cuda_streams(device: torch.device, names: Sequence[str]) -> CudaStreams:
    """Main, and one stream of the device for each name."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    others = (SideStream(name, _side_stream(index, name)) for name in names)
    return CudaStreams(CurrentStream(torch.device("cuda", index)), *others)
