"""Streams of a CUDA device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.gemm_target import GemmTarget, gemm_target
from dynaflow_dsl.runtime.model import StreamOptions
from dynaflow_dsl.runtime.stream_names import name_thread
from dynaflow_dsl.runtime.streams import CallingThread, InTurn, Streams


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

    __slots__ = ("_before", "_name_before", "name", "stream", "target")

    def __init__(
        self, name: str, stream: torch.cuda.Stream, target: GemmTarget | None = None
    ) -> None:
        self.name = name
        self.stream = stream
        self.target = target
        self._before: Any = None
        self._name_before = ""

    def __enter__(self) -> None:
        self._before = torch.cuda.current_stream(self.stream.device)
        torch.cuda.set_stream(self.stream)
        self._name_before = name_thread(self.name)
        if self.target is not None:
            try:
                self.target.begin()
            except BaseException:  # nobody leaves what was not entered
                self._leave()
                raise

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if self.target is not None:
                self.target.end()
        finally:
            self._leave()

    def _leave(self) -> None:
        name_thread(self._name_before)
        torch.cuda.set_stream(self._before)

    def record(self) -> torch.cuda.Event:
        """An event after all work so far on this stream."""
        event: torch.cuda.Event = self.stream.record_event()
        return event

    def wait(self, event: torch.cuda.Event) -> None:
        """Let this stream wait; the host does not."""
        self.stream.wait_event(event)


class Planned(CallingThread):
    """A stream whose work runs when it is called, its products planned as they were."""

    __slots__ = ("target",)

    def __init__(self, name: str, target: GemmTarget) -> None:
        super().__init__(name)
        self.target = target

    def __enter__(self) -> None:
        self.target.begin()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.target.end()


def in_turn(
    device: torch.device, names: Sequence[str], options: Mapping[str, StreamOptions]
) -> Streams:
    """One stream for all, on which products take the kernels that they take on many."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    others: list[CallingThread] = []
    for name in names:
        sms = options[name].gemm_sms if name in options else None
        others.append(
            CallingThread(name)
            if sms is None
            else Planned(name, gemm_target(index, name, sms))
        )
    return InTurn(CallingThread("main"), *others)


class CudaStreams(Streams):
    """Streams of one device; a step inside a capture ends at main."""

    def __init__(self, main: CurrentStream, *sides: SideStream) -> None:
        super().__init__(main, *sides)
        self.main: CurrentStream = main
        self.sides = sides

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

    def take_turn(self) -> None:
        """Let the current stream wait for the one that had the last turn, if another.

        Not in somebody's capture: what was not captured cannot be awaited there.
        """
        if not torch.cuda.is_current_stream_capturing():
            device = self.main.device
            assert device.index is not None
            take_turn(device.index)


# The stream of the last step that used memory which steps share, by device: buffers of
# weights, or what graphs use of libraries' workspaces, which belong to streams.
_last_stream: dict[int, tuple[int | None, torch.cuda.Stream | None]] = {}


def take_turn(index: int) -> None:
    """Let the current stream of a device wait for the one that had the last turn."""
    # The number alone: making an object of the stream takes microseconds.
    number = torch._C._cuda_getCurrentRawStream(index)
    last_number, last = _last_stream.get(index, (None, None))
    if last_number != number:
        current = torch.cuda.current_stream(index)
        if last is not None:
            current.wait_stream(last)
        _last_stream[index] = number, current


# CUDA's numbers: lower goes first, and 0 is the lowest that streams have.
_PRIORITIES = {"normal": 0, "high": -1}


@cache
def _side_stream(index: int, name: str, options: StreamOptions) -> torch.cuda.Stream:
    if options.sms is None:
        priority = _PRIORITIES[options.priority]
        stream: torch.cuda.Stream = torch.cuda.Stream(index, priority)  # type: ignore[no-untyped-call]
    else:
        stream = _partition_stream(index, name, options.sms)
    return stream


def _partition_stream(index: int, name: str, sms: int) -> torch.cuda.Stream:
    """A stream whose work is kept to some multiprocessors, by a green context."""
    most = torch.cuda.get_device_properties(index).multi_processor_count
    if sms > most:
        raise LoadError(
            "DFS807",
            f"the stream `{name}` asks for {sms} multiprocessors, and the device has "
            f"{most}: give it fewer.",
        )
    context = _green_context(index, name, sms)
    # The stream lives as long as its context, which is kept for good.
    _contexts.append(context)
    stream: torch.cuda.Stream = context.Stream()
    return stream


def _green_context(index: int, name: str, sms: int) -> Any:
    asked = f"the stream `{name}` asks for {sms} multiprocessors (`sms`), and"
    try:
        from torch.cuda.green_contexts import SUPPORTED, GreenContext
    except ImportError:
        supported = False
    else:
        supported = SUPPORTED and hasattr(GreenContext, "Stream")
    if not supported:
        raise LoadError(
            "DFS807",
            f"{asked} this PyTorch ({torch.__version__}) has no green contexts with "
            "streams: leave `sms` out.",
        )
    with torch.cuda.device(index):
        # Partitions are made of the primary context, which is there after first use.
        torch.cuda.synchronize()
        try:
            return GreenContext.create(num_sms=sms, device_id=index)
        except RuntimeError as error:
            first = str(error).partition("\n")[0]
            raise LoadError("DFS807", f"{asked} the device refuses: {first}") from error


_contexts: list[Any] = []


def cuda_streams(
    device: torch.device,
    names: Sequence[str],
    options: Mapping[str, StreamOptions] | None = None,
) -> CudaStreams:
    """Main, and one stream of the device for each name.

    Raises LoadError (DFS807) for options that the device cannot do.
    """
    index = device.index if device.index is not None else torch.cuda.current_device()
    chosen = {name: (options or {}).get(name, StreamOptions()) for name in names}
    for name, one in chosen.items():
        if one.sms is not None and one.priority != "normal":
            raise LoadError(
                "DFS807",
                f"the stream `{name}` asks for `priority` and `sms`, and PyTorch gives "
                "streams with a share of the multiprocessors no priority: leave one "
                "of them out.",
            )
    sides = [
        SideStream(
            name,
            _side_stream(index, name, replace(one, gemm_sms=None)),
            None if one.gemm_sms is None else gemm_target(index, name, one.gemm_sms),
        )
        for name, one in chosen.items()
    ]
    return CudaStreams(CurrentStream(torch.device("cuda", index)), *sides)
