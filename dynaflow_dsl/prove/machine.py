"""An abstract machine that runs a plan, over values instead of numbers.

It knows the rules of streams and of the caching allocator and nothing of how the plan
was made: a step may read what its stream knows to be finished; memory goes back to the
stream that made it when the last name of its storage is dropped. Clocks are vector
clocks, as Fidge and Mattern describe them: for each stream, how much of every other one
is known to have finished. What a stream did last stands for all that it did before.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from dynaflow_dsl.bind.uses import Resource
from dynaflow_dsl.prove.memory import Access, Content, Storage
from dynaflow_dsl.source import Span


class Step(NamedTuple):
    """One piece of one part in one iteration; `piece` is None for whole tensors."""

    part: str
    iteration: int
    piece: int | None


class Owner(NamedTuple):
    """A part in one iteration, all pieces together."""

    part: str
    iteration: int


Kind = Literal["race", "order", "freed", "shared", "value", "unbound"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule broken by a step, and the other step that it takes to break it.

    `race`: nothing orders the two. `order`: they are ordered, the wrong way round.
    `freed`: memory goes back too early. `shared`: both use a thing that one may use at
    a time. `value` and `unbound`: a variable holds something else, or nothing.
    """

    kind: Kind
    message: str
    span: Span | None
    other: Span | None = None
    missing: str = ""
    here: Access | None = None
    there: Access | None = None
    resource: Resource | None = None


Clock = dict[str, int]

# A part that brings weights, and the number of one of its buffers.
Buffer = tuple[str, int]


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host waited for the device in a step, and knew this to be done after it."""

    step: Step
    known: Clock


@dataclass(slots=True)
class _History:
    """Who touched a place in memory: the last writer, and each stream's last reader."""

    owner: Owner | None = None
    write: Access | None = None
    reads: dict[str, Access] = field(default_factory=dict)


class Machine:
    """Streams with vector clocks, variables, events, and what went wrong."""

    def __init__(self, streams: tuple[str, ...]) -> None:
        self.streams = streams
        self.clocks: dict[str, Clock] = {s: dict.fromkeys(streams, 0) for s in streams}
        self.events: dict[str, tuple[Clock, Access | None]] = {}
        self.variables: dict[str, Content] = {}
        self.held: list[Content] = []
        # The layer whose weights each buffer holds.
        self.buffers: dict[Buffer, int] = {}
        self.faults: list[Fault] = []
        # What a step's stream knew to be done when it was issued, and what was done
        # then in any case, since the host had waited for it.
        self.starts: dict[Step, Clock] = {}
        self.begins: dict[Step, Clock] = {}
        self.host_waits: list[HostWait] = []
        self.accesses: dict[Step, Access] = {}
        self._last: dict[str, Access] = {}
        self._names: dict[Storage, int] = {}
        self._touched: dict[tuple[str, int], _History] = {}
        self._used: dict[Hashable, dict[str, Access]] = {}

    def fault(self, kind: Kind, message: str, span: Span | None) -> None:
        """Note a broken rule that concerns one place."""
        self.faults.append(Fault(kind, message, span))

    def start(self, step: Step, stream: str) -> None:
        """A step is about to be issued."""
        self.starts[step] = dict(self.clocks[stream])
        self.begins[step] = self._done(self.starts[step])

    def wait_on_host(self, step: Step, *, done: bool) -> None:
        """The host waited in a step for what its stream had to do; with `done`, for all
        of the step.

        What is issued later is issued then. No order is built on that: a graph that was
        recorded has no host.
        """
        known = self._done(self.starts[step])
        if done:
            access = self.accesses[step]
            known[access.stream] = access.time
        self.host_waits.append(HostWait(step, known))

    def _done(self, known: Clock) -> Clock:
        """What is known, and what the host has waited for."""
        if not self.host_waits:
            return dict(known)
        waited = self.host_waits[-1].known
        return {stream: max(time, waited[stream]) for stream, time in known.items()}

    def issue(
        self, stream: str, label: str, span: Span | None, layer: int | None = None
    ) -> Access:
        """A stream does something: its own clock advances."""
        clock = self.clocks[stream]
        clock[stream] += 1
        access = Access(stream, clock[stream], label, span, layer)
        self._last[stream] = access
        return access

    def knows(self, stream: str, access: Access) -> bool:
        """Whether a stream knows that something has finished."""
        return self.clocks[stream][access.stream] >= access.time

    def record(self, event: str, stream: str) -> None:
        """Remember what a stream knows now."""
        self.events[event] = dict(self.clocks[stream]), self._last.get(stream)

    def wait(self, stream: str, event: str, span: Span | None) -> None:
        """Take over what an event knew."""
        known = self.events.get(event)
        if known is None:
            self.fault("unbound", f"{stream} waits for {event}, never recorded", span)
            return
        self._learn(stream, known[0])

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

    def last_on(self, stream: str) -> Access | None:
        """What a stream did last."""
        return self._last.get(stream)

    def _learn(self, stream: str, known: Clock) -> None:
        clock = self.clocks[stream]
        for other, time in known.items():
            if time > clock[other]:
                clock[other] = time

    def read(self, content: Content, access: Access, variable: str) -> None:
        """An access reads a storage; its stream must know that it is complete."""
        storage = content.storage
        if storage.from_outside:
            return
        for row in storage.at(content.piece):
            row.readers[access.stream] = access
        for made in storage.makers(content.piece):
            if not self.knows(access.stream, made):
                self._both(
                    "race",
                    f"{access.label} reads {variable} without waiting for {made.label}",
                    access,
                    made,
                )
        storage.readers[access.stream] = access

    def write(self, where: Content, access: Access, made: Content, name: str) -> None:
        """An access writes what it made to rows of a storage that is for that.

        Its stream must know that nobody uses them any more.
        """
        storage = where.storage
        rows = storage.at(where.piece)
        if not rows or (where.piece is None) != (made.piece is None):
            said = f"{access.label} writes {name}, where what it makes has no place"
            self.fault("value", said, access.span)
            return
        readers = [other for row in rows for other in row.readers.values()]
        users = (storage.made, *storage.makers(where.piece), *readers)
        for other in dict.fromkeys(users):
            if not self.knows(access.stream, other):
                self._both(
                    "race",
                    f"{access.label} writes {name} without waiting for {other.label}",
                    access,
                    other,
                )
        for k, row in enumerate(rows):
            row.value, row.writer = made.value, access
            row.piece = k if made.piece is None else made.piece
            row.readers.clear()
        storage.readers[access.stream] = access

    def touch(
        self,
        name: str,
        place: int,
        access: Access,
        owner: Owner,
        expected: Owner | None,
        *,
        writes: bool,
    ) -> None:
        """An access reads or writes memory that is not its own.

        `expected` is who wrote it last before `owner` in the model's own order.
        """
        history = self._touched.setdefault((name, place), _History())
        for other in self.conflicts(name, place, writes=writes):
            if not self.knows(access.stream, other):
                self._both(
                    "race",
                    f"{access.label} and {other.label} touch {name} at once, and one "
                    "of them writes it",
                    access,
                    other,
                )
        if history.owner not in (expected, owner):
            self._wrong_order(name, access, history, expected)
        if writes and history.owner == owner:
            # Other pieces have written before; who reads should have found this one's.
            for reader in history.reads.values():
                said = f"{reader.label} reads {name} before {access.label} writes it"
                self.faults.append(
                    Fault(
                        "order",
                        said,
                        reader.span,
                        access.span,
                        here=reader,
                        there=access,
                    )
                )
        if writes:
            history.owner, history.write = owner, access
            history.reads.clear()
        else:
            history.reads[access.stream] = access

    def conflicts(self, name: str, place: int, *, writes: bool) -> list[Access]:
        """Who has to be done with a memory before it is read or written now."""
        history = self._touched.get((name, place))
        if history is None:
            return []
        earlier = [*history.reads.values()] if writes else []
        return earlier if history.write is None else [*earlier, history.write]

    def _wrong_order(
        self, name: str, access: Access, history: _History, expected: Owner | None
    ) -> None:
        other = history.write
        before = f"{expected.part} of layer {expected.iteration}" if expected else ""
        said = f"after {before}" if expected else "as the step was given it"
        found = f", and finds what {other.label} wrote" if other else ""
        self.faults.append(
            Fault(
                "order",
                f"{access.label} needs {name} {said}{found}",
                access.span,
                other.span if other else None,
                here=access,
                there=other,
            )
        )

    def use(self, resource: Resource, access: Access) -> None:
        """An access takes something that one may use at a time."""
        # Who uses it on one stream alone leaves those on others what they have.
        kinds = (False,) if resource.by_stream else (False, True)
        for other in chain.from_iterable(
            self._used.get(resource._replace(by_stream=kind), {}).values()
            for kind in kinds
        ):
            if not self.knows(access.stream, other):
                self._both(
                    "shared",
                    f"{access.label} and {other.label} use {resource} at once",
                    access,
                    other,
                    resource,
                )
        self._used.setdefault(resource, {})[access.stream] = access

    def fill(self, buffer: Buffer, layer: int, access: Access) -> None:
        """An access brings the weights of a layer to a buffer."""
        self.buffers[buffer] = layer
        self._touch_buffer(buffer, access, writes=True)

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
        # Whose weights it holds is checked apart: the order of the model says nothing.
        held = Owner(part, self.buffers.get(buffer, -1))
        history = self._touched.get((name, 0))
        expected = history.owner if history is not None else None
        self.touch(name, 0, access, held, expected, writes=writes)

    def bind(self, variable: str, content: Content, span: Span | None) -> None:
        """Give a name to a value; what it named before may lose its last name."""
        self._names[content.storage] = self._names.get(content.storage, 0) + 1
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
        self._let_go(content, variable)

    def _let_go(self, content: Content, variable: str) -> None:
        storage = content.storage
        self._names[storage] -= 1
        if self._names[storage] == 0:
            del self._names[storage]
            self._free(storage, variable)

    def hold(self, variable: str, span: Span | None) -> None:
        """Keep a value beyond its name, until the end."""
        content = self.variables.get(variable)
        if content is None:
            self.fault("unbound", f"{variable} is kept but not bound", span)
            return
        self._names[content.storage] += 1
        self.held.append(content)

    def _free(self, storage: Storage, variable: str) -> None:
        if storage.from_outside:
            return
        made = storage.made
        for reader in storage.readers.values():
            if not self.knows(made.stream, reader):
                self._both(
                    "freed",
                    f"{variable}, made by {made.label} on {made.stream}, is freed "
                    f"before {made.stream} has waited for {reader.label} on "
                    f"{reader.stream}",
                    reader,
                    made,
                )

    def finish(self) -> None:
        """The step is over: every name that is left goes."""
        for variable in list(self.variables):
            self.drop(variable, None)
        for content in self.held:
            self._let_go(content, content.value)

    def _both(
        self,
        kind: Kind,
        message: str,
        here: Access,
        there: Access,
        resource: Resource | None = None,
    ) -> None:
        waiting, awaited = here, there
        if kind == "freed":
            waiting, awaited = there, here
        missing = (
            f"{waiting.stream} never waits for {awaited.label} on {awaited.stream} "
            f"before {'that' if kind == 'freed' else waiting.label}"
        )
        self.faults.append(
            Fault(kind, message, here.span, there.span, missing, here, there, resource)
        )
