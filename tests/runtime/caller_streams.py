"""Callers that run steps on several streams, in the words of the simulator.

The runtime is the real one, turns included; the device is pretended: every operation
becomes a kernel in the queue of the stream that is current, with the memory that it
reads and writes. All that was made inside recordings is one cell: graphs share a pool,
so that any of them may write over what another has left there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynaflow_dsl.runtime import cuda_streams
from tests.runtime.fake_graphs import FakeGraphs
from tests.simulator.orders import Fault, Orders
from tests.simulator.queues import Cell, Kernel, Recording
from tests.simulator.stand_ins import Recorder

POOL: Cell = ("the pool of all graphs", None)


@dataclass(frozen=True, slots=True)
class CallerStream:
    """A stream of the caller's, as far as turns are concerned."""

    callers: Callers
    name: str

    def wait_stream(self, other: CallerStream) -> None:
        self.callers.order(other.name, self.name)


class Callers(TorchDispatchMode):
    """Streams on which steps are called, and all that they are given to do."""

    def __init__(self, patch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
        super().__init__()
        self.recorder = Recorder(names)
        self.recorder.current = [names[0]]
        self.streams = {name: CallerStream(self, name) for name in names}
        self.pool: set[int] = set()
        self.recording = False
        # Memory that is given back would come again as that of other tensors.
        self.kept: list[Any] = []
        patch.setattr(cuda_streams, "_last_stream", {})
        patch.setattr(
            torch._C, "_cuda_getCurrentRawStream", self._number, raising=False
        )
        patch.setattr(torch.cuda, "current_stream", lambda _: self._current())

    def _current(self) -> CallerStream:
        return self.streams[self.recorder.current[-1]]

    def _number(self, _: int) -> int:
        return list(self.streams).index(self._current().name)

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        """Run what follows on a stream."""
        self.recorder.current.append(stream)
        with self:
            yield
        self.recorder.current.pop()

    def order(self, earlier: str, later: str) -> None:
        """Let one stream wait for what another was given so far."""
        event = next(self.recorder.events)
        self.recorder.put(earlier, "record", event)
        self.recorder.put(later, "wait", event)

    def synchronize(self) -> None:
        """The host waits: what it issues from now on comes after everything."""
        for one in self.streams:
            for other in self.streams:
                if one != other:
                    self.order(one, other)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        outputs = func(*args, **named)
        self.kept += [args, named, outputs]
        if self.recording:
            return outputs
        schema = func._schema
        given = [*zip(schema.arguments, args, strict=False)]
        given += [
            (one, named[one.name]) for one in schema.arguments if one.name in named
        ]
        written = [
            cell
            for one, value in given
            if one.alias_info is not None and one.alias_info.is_write
            for cell in self.cells(value)
        ]
        if not any(one.alias_info is not None for one in schema.returns):
            written += self.cells(outputs)
        elif not schema.is_mutable:
            # A view, which touches nothing.
            return outputs
        read = [cell for _, value in given for cell in self.cells(value)]
        self._launch(str(func), read, written)
        return outputs

    def _launch(self, label: str, read: list[Cell], written: list[Cell]) -> None:
        """A kernel; those that nothing of another stream comes between are one."""
        items, stream = self.recorder.items, self.recorder.current[-1]
        last = items[-1] if items else None
        if (
            last is not None
            and last.stream == stream
            and isinstance(last.work, Kernel)
            and last.kind == "run"
        ):
            items.pop()
            before = [cell for cell, _, _ in last.work.writes]
            read = [*last.work.reads, *(cell for cell in read if cell not in before)]
            written = [*before, *written]
            label = last.work.label
        writes = tuple((cell, (label,), ()) for cell in dict.fromkeys(written))
        self.recorder.launch(Kernel(label, tuple(dict.fromkeys(read)), writes))

    def cells(self, value: Any) -> list[Cell]:
        """The memory of tensors."""
        found = [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
        memory = [one.untyped_storage().data_ptr() for one in found if one.numel()]
        return [POOL if one in self.pool else (one, None) for one in memory]

    def faults(self) -> set[str]:
        """What goes wrong in some order of the streams."""
        recording = Recording(self.recorder.streams, self.recorder.items)
        orders = Orders(recording)
        explored = orders.all(20_000)
        found: list[Fault] = (
            orders.starving() if explored is None else [*explored.faults]
        )
        return {fault.kind for fault in found}


@dataclass
class QueueGraphs(FakeGraphs):
    """Graphs whose replays are what callers' streams are given."""

    callers: Callers | None = None
    turn: Callable[[int], None] = cuda_streams.take_turn

    def _streams(self) -> Callers:
        assert self.callers is not None
        return self.callers

    @contextmanager
    def session(self) -> Iterator[None]:
        callers = self._streams()
        # As that of CUDA does before it records.
        callers.synchronize()
        callers.recording = True
        try:
            with super().session():
                yield
                callers.pool |= self.created
        finally:
            callers.recording = False

    def take_turn(self) -> None:
        self.turn(0)
