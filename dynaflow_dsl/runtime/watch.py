"""Streams that tell which step of the schedule is issued, and after which others.

For those who look at a step from outside: an executor is loaded with
`StepWatch.over(make_streams)` instead of `make_streams`, and nothing else changes. An
executor that is loaded without it knows nothing of this module.
"""

from __future__ import annotations

import linecache
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.model import StreamOptions, every_part
from dynaflow_dsl.runtime.module_map import ModuleMap, read_map
from dynaflow_dsl.runtime.notes import OUTSIDE
from dynaflow_dsl.runtime.recording import CallKey, Parts
from dynaflow_dsl.runtime.streams import (
    Call,
    Failed,
    MakeStreams,
    Stream,
    Streams,
    make_streams,
)

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the schedule as it was issued: a call of a part on a stream.

    `label` is `attn[0]`, without a `prev.`; work between parts, such as joining pieces,
    has the module's text there and no `part`. `layer` is the number of the model's
    layer, `position` that of the iteration; `line` is that of the schedule file, 0
    where none is known.
    """

    label: str
    part: str
    stream: str
    position: int
    layer: int | None
    line: int

    @property
    def piece(self) -> int | None:
        """The number of the microbatch; None where the step is not of one piece."""
        _, _, index = self.label.removesuffix("]").partition("[")
        return int(index) if self.part and index.isdigit() else None

    def __str__(self) -> str:
        return self.label if self.layer is None else f"{self.label} layer {self.layer}"


@dataclass(slots=True)
class _Issued:
    """A step, how far each stream had come for it, and its own number there."""

    stream: str
    module_line: int
    start: Mapping[str, int]
    number: int
    step: Step | None = None
    groups: tuple[str, ...] = ()


def _nothing(number: int) -> None:
    pass


@dataclass(slots=True)
class StepWatch:
    """Watches the steps of one executor, one run after the other.

    `begin` and `end` are called with the number of a step, in order of issue, while its
    stream is the current one. `begin_work` and `end_work` stand around the calls of its
    parts, on the thread that runs them, where the module has collectives: the host may
    have gone on to other steps meanwhile.
    """

    begin: Callable[[int], None] = _nothing
    end: Callable[[int], None] = _nothing
    begin_work: Callable[[int], None] = _nothing
    end_work: Callable[[int], None] = _nothing
    _issued: list[_Issued] = field(default_factory=list)
    _clocks: dict[str, dict[str, int]] = field(default_factory=dict)
    _open: int | None = None
    _file: str = ""
    _map: ModuleMap | None = None
    _executor: Executor | None = None

    def over(self, make: MakeStreams = make_streams) -> MakeStreams:
        """What an executor is loaded with: the streams of `make`, watched."""

        def watched(
            device: torch.device,
            names: Sequence[str],
            options: Mapping[str, StreamOptions],
        ) -> Streams:
            return _WatchedStreams(self, make(device, names, options))

        return watched

    def run(self, executor: Executor, arguments: Sequence[Any]) -> Any:
        """One step of an executor that was loaded with `over`."""
        file = type(executor).step.__code__.co_filename
        if file != self._file:
            self._file, self._map = file, read_map(Path(file))
        self._executor = executor
        self._issued.clear()
        self._open = None
        self._clocks = {stream.name: {} for stream in executor.streams}
        names = (*every_part(executor.parts()), *executor.fetches())
        with Parts(executor, names).through(self._called):
            return executor(*arguments)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the last run, in order of issue."""
        return tuple(self._described(one) for one in self._issued)

    @property
    def awaited(self) -> tuple[tuple[int, ...], ...]:
        """By step of the last run, the steps of other streams that it waits for.

        Of each stream the last one, and none that the step before it on its own stream
        has waited for already.
        """
        places = {(one.stream, one.number): k for k, one in enumerate(self._issued)}
        before: dict[str, Mapping[str, int]] = {}
        found = []
        for one in self._issued:
            known = before.get(one.stream, {})
            found.append(
                tuple(
                    places[stream, number]
                    for stream, number in one.start.items()
                    if stream != one.stream and number > known.get(stream, 0)
                )
            )
            before[one.stream] = one.start
        return tuple(found)

    @property
    def groups(self) -> Mapping[int, tuple[str, ...]]:
        """By step of the last run that has collectives, the process groups of these."""
        return {k: one.groups for k, one in enumerate(self._issued) if one.groups}

    def unordered(self) -> list[tuple[int, int]]:
        """Pairs of steps of the last run, the lower number first, on different streams
        and without a path of waits between them.
        """
        return [
            (first, second)
            for (first, one), (second, other) in combinations(
                enumerate(self._issued), 2
            )
            if one.stream != other.stream
            and other.start.get(one.stream, 0) < one.number
        ]

    # ---- called by the streams -------------------------------------------------------

    def enter(self, stream: str, line: int) -> None:
        """A block of a stream begins; what is called now is its work."""
        clock = self._clocks.setdefault(stream, {})
        number = clock.get(stream, 0) + 1
        self._open = len(self._issued)
        self._issued.append(_Issued(stream, line, dict(clock), number))
        clock[stream] = number
        self.begin(self._open)

    def leave(self) -> None:
        """The block ends."""
        if self._open is not None:
            self.end(self._open)
        self._open = None

    @property
    def open(self) -> int | None:
        """The number of the step that is being issued; None between steps."""
        return self._open

    @contextmanager
    def working(self, step: int | None) -> Iterator[None]:
        """A part of the step runs, on this thread."""
        if step is None:
            yield
            return
        self.begin_work(step)
        try:
            yield
        finally:
            self.end_work(step)

    def clock(self, stream: str) -> Mapping[str, int]:
        """How far each stream has come for the next work of a stream."""
        return dict(self._clocks.get(stream, {}))

    def merge(self, stream: str, other: Mapping[str, int]) -> None:
        """The stream has waited for what `other` stands for."""
        clock = self._clocks.setdefault(stream, {})
        for name, number in other.items():
            clock[name] = max(clock.get(name, 0), number)

    def _called(self, key: CallKey, call: Call, arguments: tuple[Any, ...]) -> Any:
        alone = self._open is None
        if alone:
            self.enter(MAIN, 0)
        assert self._open is not None
        issued = self._issued[self._open]
        if issued.step is None:
            issued.step = self._step(key, issued.stream)
        if self._executor is not None:
            issued.groups += self._executor.groups.get(key[0], ())
        try:
            return call(*arguments)
        finally:
            if alone:
                self.leave()

    def _step(self, key: CallKey, stream: str) -> Step:
        name, position, _ = key
        assert self._map is not None
        assert self._executor is not None
        entry = self._map.plan_lines(_line_in(self._file))
        if entry is None:
            return Step(name, name, stream, position, None, 0)
        label = entry.label.removeprefix("prev.")
        part = label.partition("[")[0]
        fetch = self._executor.fetches().get(name)
        layers = (fetch or every_part(self._executor.parts())[name]).layers
        layer: int | None = None
        if entry.layer is not None and part not in OUTSIDE:
            layer = layers[position] if position < len(layers) else position
        return Step(label, part, stream, position, layer, entry.line)

    def _described(self, issued: _Issued) -> Step:
        if issued.step is not None:
            return issued.step
        text = linecache.getline(self._file, issued.module_line + 1).strip()
        return Step(text or "between parts", "", issued.stream, 0, None, 0)


class _WatchedStream:
    """A stream that tells of its blocks, events and waits."""

    def __init__(self, watch: StepWatch, stream: Stream) -> None:
        self.name = stream.name
        self._watch = watch
        self._stream = stream

    def __enter__(self) -> object:
        entered = self._stream.__enter__()
        self._watch.enter(self.name, sys._getframe(1).f_lineno)
        return entered

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self._watch.leave()
        self._stream.__exit__(kind, error, traceback)

    def record(self) -> tuple[Any, Mapping[str, int]]:
        """The stream's own event, and how far things had come."""
        return self._stream.record(), self._watch.clock(self.name)

    def wait(self, event: tuple[Any, Mapping[str, int]]) -> None:
        """Wait on the stream itself, and note it."""
        own, clock = event
        self._stream.wait(own)
        self._watch.merge(self.name, clock)


class _WatchedStreams(Streams):
    def __init__(self, watch: StepWatch, streams: Streams) -> None:
        main, *others = (_WatchedStream(watch, stream) for stream in streams)
        super().__init__(main, *others)
        self._watch = watch
        self._streams = streams

    def join(self) -> None:
        """The join of the streams themselves, which knows their device."""
        self._streams.join()
        for stream in self.others:
            self._watch.merge(MAIN, self._watch.clock(stream.name))
        for stream in self.others:
            self._watch.merge(stream.name, self._watch.clock(MAIN))

    def take_turn(self) -> None:
        """As the streams themselves do."""
        self._streams.take_turn()

    def abandon(self) -> None:
        """As the streams themselves do."""
        self._streams.abandon()

    def with_collectives(self) -> Streams:
        """The streams on which collectives are under way, watched."""
        streams = self._streams.with_collectives()
        return (
            self if streams is self._streams else _WatchedStreams(self._watch, streams)
        )

    def led(self, call: Call, text: Call, started: Callable[[], Failed] | None) -> Call:
        """How the streams call a part, which may be later and on another thread."""
        # Calls of one part and layer end in the order in which they were issued.
        numbers: deque[int | None] = deque()

        def work(*arguments: Any) -> Any:
            with self._watch.working(numbers.popleft()):
                return call(*arguments)

        led = self._streams.led(work, text, started)

        def part(*arguments: Any) -> Any:
            numbers.append(self._watch.open)
            return led(*arguments)

        return part


def _line_in(file: str) -> int:
    """The line that the outermost frame of a file is at."""
    frame: FrameType | None = sys._getframe()
    line = 0
    while frame is not None:
        if frame.f_code.co_filename == file:
            line = frame.f_lineno
        frame = frame.f_back
    return line
