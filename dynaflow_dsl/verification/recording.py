"""Runs an executor's text on recording streams and finds races and early frees.

Nothing is believed: order comes only from the events that the step records and waits
for, memory from the operations that PyTorch dispatches, and frees from the storages
that Python drops.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.model import StreamOptions
from dynaflow_dsl.runtime.streams import Streams
from dynaflow_dsl.verification.clocks import MAIN, Clocks, recording_streams
from dynaflow_dsl.verification.memory import Access, Memory, Place, extent_of
from dynaflow_dsl.verification.operators import written_tensors
from dynaflow_dsl.verification.weights import Brought, WeightWatch

FaultKind: TypeAlias = Literal[
    "read before write",
    "write before read",
    "write before write",
    "early free",
    "weights of another layer",
    "output not on main",
    "not joined",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """Two pieces of work that had to be ordered and were not.

    `place` is the later one in program order, `other` the earlier; a fault of the join
    has only one of them.
    """

    kind: FaultKind
    place: Place
    other: Place | None
    file: str

    def __str__(self) -> str:
        later = self._written(self.place)
        earlier = "" if self.other is None else self._written(self.other)
        match self.kind:
            case "early free":
                return (
                    f"{self.kind}: the result of {later} was dropped before "
                    f"{self.place.stream} had waited for {earlier}"
                )
            case "weights of another layer":
                return (
                    f"{self.kind}: {later} finds in its buffer what {earlier} brought"
                )
            case "output not on main":
                return f"{self.kind}: main has not waited for {later}"
            case "not joined":
                return f"{self.kind}: at the end of the step, {self.place.operator}"
        return f"{self.kind}: {later} has not waited for {earlier}"

    def _written(self, place: Place) -> str:
        where = f" ({self.file}:{place.line})" if place.line else ""
        return f"{place.operator} on {place.stream}{where}"


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive work of one line of the plan, between two calls of its streams.

    `start` is the clock of its first work, its own number excluded; `last` the number
    of its last work on `stream`.
    """

    line: int
    stream: str
    start: Mapping[str, int]
    last: int

    def unordered(self, other: Block) -> bool:
        """Whether neither of the two was ordered after the other."""
        if self.stream == other.stream:
            return False
        after = other.start.get(self.stream, 0) >= self.last
        before = self.start.get(other.stream, 0) >= other.last
        return not after and not before


@dataclass(frozen=True, slots=True)
class Recording:
    """What one step did.

    `file` is the module, `blocks` its lines in program order, and `outputs` what the
    step returned.
    """

    file: str
    faults: tuple[Fault, ...]
    blocks: tuple[Block, ...]
    operations: int
    outputs: Any

    def concurrent_lines(self) -> frozenset[tuple[int, int]]:
        """Pairs of module lines, the smaller first, that were unordered somewhere."""
        found: set[tuple[int, int]] = set()
        for position, block in enumerate(self.blocks):
            for other in self.blocks[position + 1 :]:
                if block.unordered(other):
                    low, high = sorted((block.line, other.line))
                    found.add((low, high))
        return frozenset(found)


@dataclass(slots=True)
class Recorder:
    """Records one step; `streams` is what the executor is loaded with."""

    clocks: Clocks = field(default_factory=Clocks)

    def streams(
        self,
        device: torch.device,
        names: Sequence[str],
        options: Mapping[str, StreamOptions],
    ) -> Streams:
        """Recording streams, on whichever device the step runs."""
        del device, options
        return recording_streams(self.clocks, tuple(names))

    def run(
        self,
        executor: Executor,
        arguments: Sequence[Any],
        constants: Sequence[torch.Tensor] = (),
        phases: Mapping[str, int] | None = None,
    ) -> Recording:
        """Run one step of `executor`, which must be loaded with `compile=False`.

        `arguments` belong to main from the start of the step; `constants` (weights)
        were ready long before. `phases` are the rows of each, for steps that are cut by
        phase.
        """
        file = type(executor).step.__code__.co_filename
        names = tuple(stream.name for stream in executor.streams)
        for name in names:
            self.clocks.add(name)
        self.clocks.current = MAIN
        self.clocks.tick()  # stands for whatever made the inputs
        watch = WeightWatch()
        observer = _Observer(self.clocks, file, watch)
        for tensor in constants:
            observer.memory.add(tensor, _OUTSIDE, external=True)
        observer.add_inputs(tree_leaves(arguments))
        self.clocks.before = observer.poll
        try:
            with watch.on(executor), observer:
                outputs = executor(*arguments, phases=phases)
        finally:
            self.clocks.before = _nothing
        observer.poll()
        observer.finish(tree_leaves(outputs), names)
        return Recording(
            file=file,
            faults=tuple(dict.fromkeys(observer.faults)),
            blocks=tuple(observer.blocks()),
            operations=observer.operations,
            outputs=outputs,
        )


_OUTSIDE = Place("the caller", MAIN, 0)


def _nothing() -> None:
    pass


@dataclass(slots=True)
class _OpenBlock:
    key: tuple[int, int, str, int]
    start: dict[str, int]
    last: int


class _Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation with its stream, and every free."""

    def __init__(self, clocks: Clocks, file: str, watch: WeightWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = Memory()
        self.faults: list[Fault] = []
        self.operations = 0
        self._clocks = clocks
        self._file = file
        self._watch = watch
        # By the storage of a buffer: whose weights it holds, and what brought them.
        self._holds: dict[int, tuple[Brought, Place]] = {}
        self._blocks: list[_OpenBlock] = []
        self._open: dict[str, _OpenBlock] = {}

    def add_inputs(self, tensors: Sequence[Any]) -> None:
        """Tensors that main has made before the step."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and self.memory.find(tensor) is None:
                record = self.memory.add(tensor, _OUTSIDE, external=True)
                record.accesses.append(Access(_OUTSIDE, 1, True, extent_of(tensor)))

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        self.poll()
        given = [one for one in tree_leaves((args, named)) if _has_memory(one)]
        self.add_inputs(given)
        written = written_tensors(func, args, named)
        result = func(*args, **named)
        made = []
        seen: set[int] = set()
        for tensor in tree_leaves(result):
            if not _has_memory(tensor) or self.memory.find(tensor) is not None:
                continue
            identity = tensor.untyped_storage()._cdata
            if identity not in seen:
                seen.add(identity)
                made.append(tensor)
        if written or made or not _has_results(result):
            self._work(str(func), given, written, made)
        return result

    def poll(self) -> None:
        """Judge the storages that were dropped since the last call."""
        for record in self.memory.expired():
            if record.external:
                continue
            clock = self._clocks.by_stream[record.made_on]
            for access in record.pending(clock):
                self.faults.append(
                    Fault("early free", record.made_by, access.place, self._file)
                )

    def finish(self, outputs: Sequence[Any], names: Sequence[str]) -> None:
        """Judge the outputs and the join, when the step has returned."""
        main = self._clocks.by_stream[MAIN]
        for output in outputs:
            if not _has_memory(output):
                continue
            if (record := self.memory.find(output)) is None:
                continue
            for access in record.pending(main):
                if access.write:
                    self.faults.append(
                        Fault("output not on main", access.place, None, self._file)
                    )
        for name in names:
            own = self._clocks.by_stream[name]
            used = name != MAIN and own.get(name, 0) > 0
            behind = main.get(name, 0) < own.get(name, 0)
            ahead = own.get(MAIN, 0) < main.get(MAIN, 0)
            if used and behind:
                self._not_joined(f"main has not waited for {name}", name)
            if used and ahead:
                self._not_joined(f"{name} has not waited for main", name)

    def _not_joined(self, what: str, name: str) -> None:
        place = Place(what, name, 0)
        self.faults.append(Fault("not joined", place, None, self._file))

    def blocks(self) -> Iterator[Block]:
        """The blocks of the step, in the order in which they started."""
        for block in self._blocks:
            line, _, stream, _ = block.key
            yield Block(line, stream, block.start, block.last)

    def _work(
        self,
        operator: str,
        given: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        made: Sequence[torch.Tensor],
    ) -> None:
        stream = self._clocks.current
        line, call = self._plan_line()
        place = Place(operator, stream, line)
        clock = self._clocks.by_stream[stream]
        start = dict(clock)
        number = self._clocks.tick()
        self.operations += 1
        self._extend_block((line, call, stream, self._clocks.turns), start, number)
        with _outside_modes():
            for tensor in given:
                write = any(tensor is one for one in written)
                self._access(tensor, place, number, write, clock)
                self._weights(tensor, place, write)
            for tensor in made:
                record = self.memory.add(tensor, place)
                extent = extent_of(tensor)
                record.accesses.append(Access(place, number, True, extent))

    def _access(
        self,
        tensor: torch.Tensor,
        place: Place,
        number: int,
        write: bool,
        clock: Mapping[str, int],
    ) -> None:
        record = self.memory.find(tensor)
        if record is None:
            # The operation has given a tensor that it was given other memory.
            record = self.memory.add(tensor, place)
        extent = extent_of(tensor)
        for access in record.conflicts(write, extent, clock):
            kind: FaultKind = "read before write"
            if write:
                kind = "write before write" if access.write else "write before read"
            self.faults.append(Fault(kind, place, access.place, self._file))
        record.accesses.append(Access(place, number, write, extent))

    def _weights(self, tensor: torch.Tensor, place: Place, write: bool) -> None:
        """Whether a buffer holds the weights of the layer that reads it."""
        buffer = tensor.untyped_storage()._cdata
        if self._watch.bringing is not None:
            if write:
                self._holds[buffer] = (self._watch.bringing, place)
        elif (held := self._holds.get(buffer)) and held[0] not in self._watch.reading:
            kind: FaultKind = "weights of another layer"
            self.faults.append(Fault(kind, place, held[1], self._file))

    def _plan_line(self) -> tuple[int, int]:
        """Line and call of the outermost frame of the module.

        The frame's variables are not looked at: Python would keep them in the frame,
        and with them storages that the step has dropped.
        """
        frame: FrameType | None = sys._getframe()
        plan: FrameType | None = None
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                plan = frame
            frame = frame.f_back
        return (0, 0) if plan is None else (plan.f_lineno, plan.f_lasti)

    def _extend_block(
        self, key: tuple[int, int, str, int], start: dict[str, int], number: int
    ) -> None:
        block = self._open.get(key[2])
        if block is None or block.key != key:
            block = _OpenBlock(key, start, number)
            self._open[key[2]] = block
            self._blocks.append(block)
        block.last = number


@contextmanager
def _outside_modes() -> Iterator[None]:
    """Our own tensors are not work of the step."""
    with torch.utils._python_dispatch._disable_current_modes():
        yield


def _has_memory(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "meta"


def _has_results(result: object) -> bool:
    return any(isinstance(one, torch.Tensor) for one in tree_leaves(result))
