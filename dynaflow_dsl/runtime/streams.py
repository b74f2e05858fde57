"""Streams and events as generated modules see them, for each kind of device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import torch

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.model import StreamOptions

Call: TypeAlias = Callable[..., Any]

# What an exception becomes that comes while a collective is awaited.
Failed: TypeAlias = Callable[[Exception], Exception]

# What `record` gives is only ever handed back to `wait` of the same backend.
Event: TypeAlias = Any


class Stream(Protocol):
    """An ordered queue of work; `with stream:` puts what is called on it."""

    name: str

    def __enter__(self) -> object:
        """Make this the stream that work goes to."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Go back to the stream that was there before."""

    def record(self) -> Event:
        """An event that is reached when all work so far on this stream is done."""

    def wait(self, event: Event) -> None:
        """Let later work on this stream start only after `event`."""


class Streams:
    """The streams of one executor: `main` first, then those that its schedule names."""

    def __init__(self, main: Stream, *others: Stream) -> None:
        self.main = main
        self.others = others
        self._all = (main, *others)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._all)

    def join(self) -> None:
        """Let main wait for every stream, then every stream for main."""
        for stream in self.others:
            self.main.wait(stream.record())
        if self.others:
            done = self.main.record()
            for stream in self.others:
                stream.wait(done)

    def take_turn(self) -> None:
        """Let what main does next follow all that used memory which steps share.

        Steps may be called on different streams; here there is one order of all work.
        """

    def with_collectives(self) -> Streams:
        """The streams of an executor that has collectives: these, where they do."""
        return self

    def abandon(self) -> None:
        """Leave alone what a step that failed has left on the streams; here nothing."""

    def led(self, call: Call, text: Call, started: Callable[[], Failed] | None) -> Call:
        """How a part is called on these streams: as it is.

        `text` is its own function with its weights. Where it has collectives, `started`
        is asked for each call that is left under way; what it gives says what an
        exception becomes that comes later.
        """
        return call


class CallingThread:
    """A stream on the CPU: work runs when it is called, so nothing is ever awaited."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass

    def record(self) -> None:
        """Nothing: the work is done already."""

    def wait(self, event: Event) -> None:
        """Nothing: the work that was recorded is done already."""


class CpuStreams(Streams):
    """Streams of the CPU, where a join has nothing to do."""

    def join(self) -> None:
        """Nothing: all work is done already."""

    def with_collectives(self) -> Streams:
        """Streams on which collectives are under way while the host goes on."""
        # Here, since they stand on the base class above.
        from dynaflow_dsl.runtime.queues import CpuQueues

        return CpuQueues([stream.name for stream in self.others])


class InTurn(CpuStreams):
    """Everything in the order of the text, collectives too."""

    def with_collectives(self) -> Streams:
        """These: a collective is awaited where it stands."""
        return self


# A device, the names of the streams beside main, and options of some of them.
MakeStreams: TypeAlias = Callable[
    [torch.device, Sequence[str], Mapping[str, StreamOptions]], Streams
]


def one_stream(
    device: torch.device,
    names: Sequence[str],
    options: Mapping[str, StreamOptions] | None = None,
) -> Streams:
    """Everything on the stream that the step is called on, in order of the text.

    For comparisons: what such a step gives, every other order has to give. Raises
    LoadError as `make_streams` does.
    """
    check_device(device)
    if device.type == "cuda" and options:
        # As below.
        from dynaflow_dsl.runtime.cuda_streams import in_turn

        return in_turn(device, names, options)
    return InTurn(CallingThread("main"), *map(CallingThread, names))


def make_streams(
    device: torch.device,
    names: Sequence[str],
    options: Mapping[str, StreamOptions] | None = None,
) -> Streams:
    """Streams of a device: main, and one for each of `names`.

    Options have no effect on the CPU. Raises LoadError for a device type that this
    version cannot run on, and for options that a CUDA device cannot do.
    """
    check_device(device)
    if device.type == "cpu":
        others = (CallingThread(name) for name in names)
        return CpuStreams(CallingThread("main"), *others)
    # Here, since it stands on the base class above.
    from dynaflow_dsl.runtime.cuda_streams import cuda_streams

    return cuda_streams(device, names, options)


def check_device(device: torch.device) -> None:
    """Refuse devices that are not there or that this version cannot run on.

    Raises LoadError (DFS801).
    """
    match device.type:
        case "cpu" if device.index:
            raise LoadError("DFS801", f"there is one CPU, and no `{device}`.")
        case "cpu":
            return
        case "cuda" if torch.cuda.is_available():
            count = torch.cuda.device_count()
            if device.index is not None and device.index >= count:
                message = f"PyTorch finds {count} CUDA devices, and no `{device}`."
                raise LoadError("DFS801", message)
        case "cuda":
            raise LoadError(
                "DFS801",
                "`cuda` was asked for, and PyTorch finds no CUDA device here.",
            )
        case other:
            raise LoadError(
                "DFS801",
                "this version of the runtime has streams for the device types `cpu` "
                f"and `cuda`, and `{other}` was asked for.",
            )
