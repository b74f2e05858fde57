"""An abstract machine that runs a plan, over values instead of numbers.

It knows the rules of streams and of the caching allocator and nothing of how the plan
was made: a step may read what its stream knows to be finished; memory goes back to the
stream that made it when the last name of its storage is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.source import Span


class Instant(NamedTuple):
    """The n-th thing that a stream does."""

    stream: str
    time: int


class Step(NamedTuple):
    """One piece of one part in one iteration; `piece` is None for whole tensors."""

    part: str
    iteration: int
    piece: int | None


@dataclass(slots=True)
class Access:
    """A step at a place of the file that touches memory at an instant."""

    instant: Instant
    label: str
    span: Span | None


@dataclass(slots=True, eq=False)
class Storage:
    """Memory made by one access and read by others."""

    made: Access
    readers: list[Access] = field(default_factory=list)
    from_outside: bool = False


class Content(NamedTuple):
    """What a variable holds: a value of the graph, all of it (None) or one piece."""

    value: str
    piece: int | None
    storage: Storage


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule broken: `kind` is `race`, `freed`, `value` or `unbound`."""

    kind: str
    message: str
    span: Span | None
    other: Span | None = None


Clock = dict[str, int]

# A part that brings weights, and the number of one of its buffers.
Buffer = tuple[str, int]


class Machine:
    """Streams with vector clocks, variables, events, and what went wrong."""

    def __init__(self, streams: tuple[str, ...]) -> None:
        self.streams = streams
        self.clocks: dict[str, Clock] = {s: dict.fromkeys(streams, 0) for s in streams}
        self.events: dict[str, Clock] = {}
        self.variables: dict[str, Content] = {}
        self.held: list[Content] = []
        # The layer whose weights each buffer holds.
        self.buffers: dict[Buffer, int] = {}
        self.faults: list[Fault] = []
        self.starts: dict[Step, Clock] = {}
        self.instants: dict[Step, Instant] = {}
        self._names: dict[Storage, int] = defaultdict(int)
        self._touched: dict[tuple[str, int], list[tuple[Access, bool]]] = defaultdict(
            list
        )

    def fault(
        self, kind: str, message: str, span: Span | None, other: Span | None = None
    ) -> None:
        """Note a broken rule."""
        self.faults.append(Fault(kind, message, span, other))

    def issue(self, stream: str, label: str, span: Span | None) -> Access:
        """A stream does something: its own clock advances."""
        clock = self.clocks[stream]
        clock[stream] += 1
        return Access(Instant(stream, clock[stream]), label, span)

    def knows(self, stream: str, instant: Instant) -> bool:
        """Whether a stream knows that something has finished."""
        return self.clocks[stream][instant.stream] >= instant.time

    def record(self, event: str, stream: str) -> None:
        """Remember what a stream knows now."""
        self.events[event] = dict(self.clocks[stream])

    def wait(self, stream: str, event: str, span: Span | None) -> None:
        """Take over what an event knew."""
        known = self.events.get(event)
        if known is None:
            self.fault("unbound", f"{stream} waits for {event}, never recorded", span)
            return
        self._learn(stream, known)

    def join(self) -> None:
        """Main waits for all, then all wait for main."""
        main = self.streams[0]
        for stream in self.streams[1:]:
            self._learn(main, self.clocks[stream])
        for stream in self.streams[1:]:
            self._learn(stream, self.clocks[main])

    def unfinished(self) -> list[str]:
        """Streams with work that main does not know to have finished."""
        known = self.clocks[self.streams[0]]
        return [s for s in self.streams if known[s] < self.clocks[s][s]]

    def _learn(self, stream: str, known: Clock) -> None:
        clock = self.clocks[stream]
        for other, time in known.items():
            clock[other] = max(clock[other], time)

    def read(self, content: Content, access: Access, variable: str) -> None:
        """An access reads a storage; its stream must know that it is complete."""
        storage = content.storage
        if storage.from_outside:
            return
        if not self.knows(access.instant.stream, storage.made.instant):
            self.fault(
                "race",
                f"{access.label} reads {variable} without waiting for "
                f"{storage.made.label}",
                access.span,
                storage.made.span,
            )
        storage.readers.append(access)

    def touch(self, name: str, place: int, access: Access, *, writes: bool) -> None:
        """An access reads or writes an input's memory in place."""
        history = self._touched[(name, place)]
        for earlier, wrote in history:
            conflict = writes or wrote
            if conflict and not self.knows(access.instant.stream, earlier.instant):
                self.fault(
                    "race",
                    f"{access.label} and {earlier.label} touch {name} at once, and one "
                    "of them writes it",
                    access.span,
                    earlier.span,
                )
        if writes:
            history.clear()
        history.append((access, writes))

    def fill(self, buffer: Buffer, layer: int, access: Access) -> None:
        """An access brings the weights of a layer to a buffer."""
        self._touch_buffer(buffer, access, writes=True)
        self.buffers[buffer] = layer

    def read_buffer(self, buffer: Buffer, layer: int, access: Access) -> None:
        """An access reads the weights of a layer, which it has to find there."""
        held = self.buffers.get(buffer)
        if held != layer:
            found = "nothing" if held is None else f"those of layer {held}"
            self.fault(
                "value",
                f"{access.label} reads the weights of layer {layer} in buffer "
                f"{buffer[1]} of {buffer[0]}, which holds {found}",
                access.span,
            )
        self._touch_buffer(buffer, access, writes=False)

    def _touch_buffer(self, buffer: Buffer, access: Access, *, writes: bool) -> None:
        part, number = buffer
        name = f"buffer {number} of {part}"
        self.touch(name, 0, access, writes=writes)

    def bind(self, variable: str, content: Content, span: Span | None) -> None:
        """Give a name to a value; what it named before may lose its last name."""
        self._names[content.storage] += 1
        self.drop(variable, span, must_exist=False)
        self.variables[variable] = content

    def drop(
        self, variable: str, span: Span | None, *, must_exist: bool = True
    ) -> None:
        """Take a name away."""
        content = self.variables.pop(variable, None)
        if content is None:
            if must_exist:
                self.fault("unbound", f"{variable} is freed but not bound", span)
            return
        self._names[content.storage] -= 1
        if self._names[content.storage] == 0:
            self._free(content.storage, variable)

    def hold(self, variable: str) -> None:
        """Keep a value beyond its name, until the end."""
        if (content := self.variables.get(variable)) is not None:
            self._names[content.storage] += 1
            self.held.append(content)

    def _free(self, storage: Storage, variable: str) -> None:
        if storage.from_outside:
            return
        maker = storage.made.instant.stream
        for reader in storage.readers:
            if not self.knows(maker, reader.instant):
                self.fault(
                    "freed",
                    f"{variable}, made by {storage.made.label} on {maker}, is freed "
                    f"before {maker} has waited for {reader.label} on "
                    f"{reader.instant.stream}",
                    reader.span,
                    storage.made.span,
                )

    def finish(self) -> None:
        """The step is over: every name that is left goes."""
        for variable in list(self.variables):
            self.drop(variable, None)
        for content in self.held:
            self._names[content.storage] -= 1
            if self._names[content.storage] == 0:
                self._free(content.storage, content.value)
