"""Streams that record which work is ordered after which, by vector clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dynaflow_dsl.runtime.streams import Streams

MAIN = "main"


@dataclass(slots=True)
class Clocks:
    """For each stream, how far it and, as far as it has waited, the others have come.

    `current` is the stream that work goes to, and `turns` counts how often a stream was
    entered or called. `before` is called before anything that changes a clock.
    """

    by_stream: dict[str, dict[str, int]] = field(default_factory=dict)
    current: str = MAIN
    turns: int = 0
    before: Callable[[], None] = lambda: None

    def add(self, name: str) -> None:
        """A stream that has done nothing and waited for nothing."""
        self.by_stream[name] = {}

    def tick(self) -> int:
        """Count one piece of work on the current stream; its number there, from 1."""
        clock = self.by_stream[self.current]
        clock[self.current] = clock.get(self.current, 0) + 1
        return clock[self.current]

    def snapshot(self, name: str) -> dict[str, int]:
        """How far things had come when a stream had done what it has now."""
        return dict(self.by_stream[name])

    def merge(self, name: str, event: Mapping[str, int]) -> None:
        """Let a stream's later work come after everything that `event` stands for."""
        clock = self.by_stream[name]
        for other, number in event.items():
            clock[other] = max(clock.get(other, 0), number)


class RecordingStream:
    """A stream of an executor that only records order; work runs when it is called."""

    def __init__(self, name: str, clocks: Clocks) -> None:
        self.name = name
        self._clocks = clocks
        self._outer: list[str] = []

    def __enter__(self) -> None:
        self._outer.append(self._clocks.current)
        self._clocks.current = self.name
        self._clocks.turns += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._clocks.current = self._outer.pop()

    def record(self) -> Mapping[str, int]:
        """The stream's clock as it is now."""
        self._clocks.before()
        self._clocks.turns += 1
        return self._clocks.snapshot(self.name)

    def wait(self, event: Mapping[str, int]) -> None:
        """Order the stream's later work after the event."""
        self._clocks.before()
        self._clocks.turns += 1
        self._clocks.merge(self.name, event)


def recording_streams(clocks: Clocks, names: tuple[str, ...]) -> Streams:
    """Main and the named streams, on `clocks`."""
    for name in (MAIN, *names):
        clocks.add(name)
    main, *others = (RecordingStream(name, clocks) for name in (MAIN, *names))
    return Streams(main, *others)
