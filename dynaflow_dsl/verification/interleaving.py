"""Runs a step's text with its streams really interleaved, on the CPU.

The step is issued as a device's host does it: every operation is only put into the
queue of its stream, with its memory taken at once, and events and waits with it. Then
the queues are worked off, one operation of a stream that may go on at a time, in random
order. What a missing wait or an early free would do on a device happens here too.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.model import StreamOptions
from dynaflow_dsl.runtime.streams import MakeStreams, Streams
from dynaflow_dsl.runtime.watch import MAIN, Step, StepWatch
from dynaflow_dsl.verification.arena import Arena, Layout
from dynaflow_dsl.verification.operators import written_tensors
from dynaflow_dsl.verification.results import copied, tensors_of
from dynaflow_dsl.verification.state import ModelState
from dynaflow_dsl.verification.stress import Timed


@dataclass(slots=True)
class _Event:
    reached: bool = False


@dataclass(frozen=True, slots=True)
class _Begin:
    step: int


@dataclass(frozen=True, slots=True)
class _End:
    step: int


@dataclass(frozen=True, slots=True)
class _Record:
    event: _Event


@dataclass(frozen=True, slots=True)
class _Wait:
    event: _Event


_Item: TypeAlias = _Begin | _End | _Record | _Wait | Callable[[], None]


@dataclass(slots=True)
class _Queues:
    """What streams have to do yet. Time counts operations and marks."""

    draw: random.Random
    releases: Mapping[int, float] = field(default_factory=dict)
    waiting: dict[str, deque[_Item]] = field(default_factory=dict)
    times: dict[int, tuple[float, float]] = field(default_factory=dict)
    current: str = MAIN
    now: float = 0.0

    def put(self, item: _Item) -> None:
        """Give the current stream more to do."""
        self.put_on(self.current, item)

    def put_on(self, stream: str, item: _Item) -> None:
        """Give a stream more to do."""
        self.waiting.setdefault(stream, deque()).append(item)

    def work(self, until: str | None = None) -> None:
        """Work off all queues, or until one of them is empty."""
        while any(self.waiting.values()):
            if until is not None and not self.waiting.get(until):
                return
            ready = [name for name, queue in self.waiting.items() if self._ready(queue)]
            if ready:
                self._do(self.waiting[self.draw.choice(sorted(ready))].popleft())
            else:
                # Only steps that are held back could go on.
                self.now = min(
                    self.releases[queue[0].step]
                    for queue in self.waiting.values()
                    if queue and isinstance(queue[0], _Begin)
                )

    def _ready(self, queue: deque[_Item]) -> bool:
        if not queue:
            return False
        match queue[0]:
            case _Wait(event):
                return event.reached
            case _Begin(step):
                return self.now >= self.releases.get(step, 0.0)
        return True

    def _do(self, item: _Item) -> None:
        match item:
            case _Record(event):
                event.reached = True
            case _Wait():
                pass
            case _Begin(step):
                self.times[step] = (self.now, self.now)
                self.now += 1
            case _End(step):
                self.now += 1
                self.times[step] = (self.times[step][0], self.now)
            case operation:
                operation()
                self.now += 1


class _QueuedStream:
    """A stream whose work is put into a queue."""

    def __init__(self, name: str, machine: Interleaved) -> None:
        self.name = name
        self._machine = machine
        self._outer: list[str] = []

    def __enter__(self) -> None:
        queues = self._machine.queues
        self._outer.append(queues.current)
        queues.current = self.name

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._machine.queues.current = self._outer.pop()

    def record(self) -> _Event:
        event = _Event()
        self._machine.queues.put_on(self.name, _Record(event))
        return event

    def wait(self, event: _Event) -> None:
        self._machine.queues.put_on(self.name, _Wait(event))


@dataclass(frozen=True, slots=True)
class _Shared:
    """A result in the memory of one of the tensors that were given, by position."""

    position: int
    offset: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class _Plain:
    """A result that is no tensor."""

    value: object


_Origin: TypeAlias = Layout | _Shared | _Plain


@dataclass(frozen=True, slots=True)
class _Known:
    """What an operation of the step was seen to do.

    A result with a layout alone is in new memory; `spec` is the form of all results.
    """

    operator: str
    results: tuple[_Origin, ...]
    spec: Any
    writes: bool

    @property
    def at_once(self) -> bool:
        """Whether it reads no memory: it makes views alone."""
        new = any(isinstance(one, Layout) for one in self.results)
        return not new and not self.writes


class Interleaved:
    """Runs steps of an executor, which `load` makes for given streams, interleaved.

    It must run the text as it stands. The first run, in order of the text, is the one
    that the others have to equal; `expected` is what it gave.
    """

    name = "interleaved"
    slack = 0.0

    def __init__(
        self,
        load: Callable[[MakeStreams], Executor],
        arguments: Sequence[Any],
        state: ModelState,
        seed: int = 0,
    ) -> None:
        self._watch = StepWatch(self._begin, self._end)
        self._executor = load(self._watch.over(self._streams))
        self._arguments = arguments
        self._state = state
        self._draw = random.Random(seed)
        self._known: list[_Known] = []
        self.queues = _Queues(self._draw)
        self.expected = self._in_order()
        self.steps: tuple[Step, ...] = self._watch.steps
        self.unordered = self._watch.unordered()

    def run(self, releases: Mapping[int, float]) -> Timed:
        """One step in random order, with some steps held back."""
        self.queues = _Queues(self._draw, releases)
        arena = Arena()
        given = copied(self._arguments)
        try:
            with _Deferred(self, arena, self._known):
                outputs = self._watch.run(self._executor, given)
            self.queues.work()
        except Exception as error:  # indices of memory that is not written yet
            return Timed((), (), f"{type(error).__name__}: {error}".partition("\n")[0])
        finally:
            effects = self._state.effects()
            self._state.restore()
        times = [self.queues.times[step] for step in range(len(self.steps))]
        made = [one.clone() for one in tensors_of(outputs)]
        return Timed(times, [*made, *tensors_of(given), *effects.values()])

    def _in_order(self) -> list[torch.Tensor]:
        given = copied(self._arguments)
        try:
            with _Learning(self._known):
                outputs = self._watch.run(self._executor, given)
            made = [one.clone() for one in tensors_of(outputs)]
            return [*made, *tensors_of(given), *self._state.effects().values()]
        finally:
            self._state.restore()

    def _streams(
        self,
        device: torch.device,
        names: Sequence[str],
        options: Mapping[str, StreamOptions],
    ) -> Streams:
        del device, options
        main, *others = (_QueuedStream(name, self) for name in (MAIN, *names))
        return Streams(main, *others)

    def _begin(self, step: int) -> None:
        self.queues.put(_Begin(step))

    def _end(self, step: int) -> None:
        self.queues.put(_End(step))


class _Learning(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what each operation of a step makes, while it runs."""

    def __init__(self, known: list[_Known]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noted = known

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        given = list(tensors_of((args, named)))
        result = func(*args, **named)
        leaves, spec = tree_flatten(result)
        self._noted.append(
            _Known(
                str(func),
                tuple(_origin(one, given) for one in leaves),
                spec,
                bool(written_tensors(func, args, named)),
            )
        )
        return result


def _origin(result: Any, given: Sequence[torch.Tensor]) -> _Origin:
    if not isinstance(result, torch.Tensor):
        return _Plain(result)
    layout = Layout.of(result)
    storage = result.untyped_storage()._cdata
    for position, one in enumerate(given):
        if one.untyped_storage()._cdata == storage:
            return _Shared(position, int(result.storage_offset()), layout)
    return layout


class _Deferred(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts the operations of a step into queues instead of running them."""

    def __init__(
        self, machine: Interleaved, arena: Arena, known: Sequence[_Known]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._machine = machine
        self._arena = arena
        self._rest = iter(known)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        known = next(self._rest, None)
        if known is None or known.operator != str(func):
            raise RuntimeError("the step runs other operations than the first time")
        if known.at_once:
            if all(isinstance(one, _Plain) for one in known.results):
                # The host asks for a value, so it waits for the stream.
                self._machine.queues.work(until=self._machine.queues.current)
            return func(*args, **named)
        given = list(tensors_of((args, named)))
        results = [self._result(one, given) for one in known.results]
        targets = [
            (place, self._arena.unowned(result))
            for place, (one, result) in enumerate(
                zip(known.results, results, strict=True)
            )
            if isinstance(one, Layout)
        ]
        inner, inner_named = tree_map(self._unowned, (args, named))

        def work() -> None:
            made = tree_leaves(func(*inner, **inner_named))
            for place, target in targets:
                target.copy_(_arrived(func, made[place]))

        self._machine.queues.put(work)
        return tree_unflatten(results, known.spec)

    def _result(self, origin: _Origin, given: Sequence[torch.Tensor]) -> Any:
        match origin:
            case Layout():
                return self._arena.take(self._machine.queues.current, origin)
            case _Shared(position, offset, layout):
                whole = given[position]
                if Layout.of(whole) == layout and whole.storage_offset() == offset:
                    return whole
                return whole.as_strided(layout.sizes, layout.strides, offset)
            case _Plain(value):
                return value

    def _unowned(self, value: Any) -> Any:
        return self._arena.unowned(value) if isinstance(value, torch.Tensor) else value


def _arrived(func: Any, made: torch.Tensor) -> torch.Tensor:
    """What a collective gives is there once it was waited for."""
    if func.namespace != "_c10d_functional":
        return made
    arrived: torch.Tensor = torch.ops._c10d_functional.wait_tensor(made)
    return arrived
