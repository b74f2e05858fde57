"""Records one step of an executor, as one graph or as graphs around some parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.graphs import Graph, GraphBackend, Nodes
from dynaflow_dsl.runtime.streams import Stream, Streams

Call: TypeAlias = Callable[..., Any]

# A call of a part in a step: its name, the iteration, and how often before.
CallKey: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a tensor that a part returned looks like."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(slots=True)
class Observation:
    """What was seen of a step while it ran.

    `blocking` are calls that made the host wait, with what they returned.
    """

    peak: int = 0
    blocking: dict[CallKey, tuple[str, Any]] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that cannot be captured, in order of their calls."""
        return tuple(dict.fromkeys(name for name, _, _ in self.blocking))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step that was recorded.

    `items` are replayed in order: graphs, and parts between them that run as they are.
    `result` is what the step returned while it was recorded; a replay writes there.
    """

    items: tuple[Callable[[], None], ...]
    result: Any
    nodes: Nodes
    graphs: int


class Parts:
    """The parts of an executor, whose calls can be led through a function."""

    def __init__(self, executor: Any, names: Sequence[str]) -> None:
        self._executor = executor
        self._names = tuple(names)

    @contextmanager
    def through(
        self, around: Callable[[CallKey, Call, tuple[Any, ...]], Any]
    ) -> Iterator[None]:
        """Call `around(key, call, arguments)` instead of parts."""
        executor = self._executor
        before: dict[str, Call] = {
            name: getattr(executor, name) for name in self._names
        }
        counts: dict[tuple[str, int], int] = {}

        def led(name: str, call: Call) -> Call:
            def part(position: int, *arguments: Any) -> Any:
                count = counts.get((name, position), 0)
                counts[name, position] = count + 1
                key = name, position, count
                return around(key, lambda *given: call(position, *given), arguments)

            return part

        for name, call in before.items():
            setattr(executor, name, led(name, call))
        try:
            yield
        finally:
            for name, call in before.items():
                setattr(executor, name, call)

    @contextmanager
    def on(self, streams: Streams) -> Iterator[None]:
        """Let the step use other streams."""
        before, self._executor.streams = self._executor.streams, streams
        try:
            yield
        finally:
            self._executor.streams = before


def observe(
    parts: Parts, backend: GraphBackend, run: Callable[[], Any]
) -> tuple[Any, Observation]:
    """Run a step, and see what it takes and which of its parts block the host."""
    observed = Observation()
    with backend.watch() as seen:

        def around(key: CallKey, call: Call, arguments: tuple[Any, ...]) -> Any:
            before = len(seen.blocking)
            returned = call(*arguments)
            if len(seen.blocking) > before:
                observed.blocking[key] = seen.blocking[before], _layouts(returned)
            return returned

        with parts.through(around):
            result = run()
    observed.peak = seen.peak
    return result, observed


def record(
    parts: Parts,
    backend: GraphBackend,
    streams: Streams,
    run: Callable[[], Any],
    observed: Observation,
) -> Recorded:
    """Record a step whose inputs lie where replays will find them.

    Parts that were seen to block are left out of the graphs and run between them, with
    their inputs and outputs in the graphs' memory.
    """
    items: list[Callable[[], None]] = []
    nodes: list[Nodes] = []
    stretch = _Stretch()

    def finish() -> None:
        graph: Graph = backend.end()
        nodes.append(graph.nodes)
        if graph.nodes.total:
            items.append(graph.replay)

    def around(key: CallKey, call: Call, arguments: tuple[Any, ...]) -> Any:
        if key not in observed.blocking:
            return call(*arguments)
        finish()
        stretch.number += 1
        backend.begin()
        _, layouts = observed.blocking[key]
        # Replays write there, whatever mode this step is recorded in.
        with torch.inference_mode(False):
            returned = _empty(layouts)
            given = tuple(_without_owner(backend, value) for value in arguments)
            items.append(_between(call, given, _without_owner(backend, returned)))
        return returned

    with backend.session():
        backend.begin()
        if observed.blocking:
            with parts.through(around), parts.on(_in_stretches(streams, stretch)):
                result = run()
        else:
            result = run()
        finish()
    total = sum(nodes, Nodes())
    return Recorded(tuple(items), result, total, len(nodes))


@dataclass(slots=True)
class _Stretch:
    """The number of the graph that is being recorded."""

    number: int = 0


class _StretchStream:
    """A stream for which events of earlier stretches lie in the past.

    All streams are joined where a stretch ends, and a graph cannot wait for another.
    """

    def __init__(self, stream: Stream, stretch: _Stretch) -> None:
        self.name = stream.name
        self._stream = stream
        self._stretch = stretch

    def __enter__(self) -> object:
        return self._stream.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._stream.__exit__(kind, error, traceback)

    def record(self) -> tuple[int, Any]:
        """An event with the stretch that it belongs to."""
        return self._stretch.number, self._stream.record()

    def wait(self, event: tuple[int, Any]) -> None:
        """Wait for an event of this stretch."""
        number, inner = event
        if number == self._stretch.number:
            self._stream.wait(inner)


class _StretchStreams(Streams):
    def join(self) -> None:
        for stream in self.others:
            self.main.wait(stream.record())


def _in_stretches(streams: Streams, stretch: _Stretch) -> Streams:
    main, *others = (_StretchStream(stream, stretch) for stream in streams)
    return _StretchStreams(main, *others)


def _between(call: Call, given: tuple[Any, ...], returned: Any) -> Callable[[], None]:
    targets = list(tensors_of(returned))

    def run() -> None:
        for target, value in zip(targets, tensors_of(call(*given)), strict=True):
            target.copy_(value)

    return run


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that a part or a step returned."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from tensors_of(one)


def map_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `function` applied to its tensors or layouts."""
    if isinstance(value, torch.Tensor | Layout):
        return function(value)
    if isinstance(value, tuple | list):
        return type(value)(map_tensors(function, one) for one in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(function, one) for key, one in value.items()}
    return value


def _layouts(value: Any) -> Any:
    return map_tensors(
        lambda one: Layout(one.shape, one.stride(), one.dtype, one.device), value
    )


def _empty(layouts: Any) -> Any:
    return map_tensors(
        lambda one: torch.empty_strided(
            one.shape, one.strides, dtype=one.dtype, device=one.device
        ),
        layouts,
    )


def _without_owner(backend: GraphBackend, value: Any) -> Any:
    return map_tensors(backend.without_owner, value)
