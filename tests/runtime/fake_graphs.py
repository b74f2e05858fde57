"""Graphs on the CPU: operations are noted with their tensors and done again.

As on a CUDA device, what is recorded is not executed as far as anyone can see: memory
that existed before and was written is put back at the end of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynaflow_dsl.runtime import Capture, Executor
from dynaflow_dsl.runtime.graphs import Graph, Nodes, Watch
from tests.runtime.toy_model import Toy


class CannotRecordError(RuntimeError):
    """What the fake device says of an operation that no graph can hold."""


class _Notes(TorchDispatchMode):
    def __init__(self, backend: FakeGraphs) -> None:
        super().__init__()
        self.backend = backend
        self.work: list[Callable[[], None]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named: Mapping[str, Any] = kwargs or {}
        backend = self.backend
        if str(func) in backend.blocking:
            if backend.recording:
                raise CannotRecordError("operation not permitted when recording")
            backend.seen.blocking.append(f"waited for {func}")
        if not backend.recording:
            return func(*args, **named)
        backend.keep(args, named)
        outputs = func(*args, **named)
        made = [one for one in tree_leaves(outputs) if isinstance(one, torch.Tensor)]
        schema = func._schema
        aliases = any(one.alias_info is not None for one in schema.returns)
        backend.created |= set() if aliases else {_memory(one) for one in made}

        def again() -> None:
            fresh = func(*args, **named)
            if not aliases:
                for old, new in zip(made, tree_leaves(fresh), strict=True):
                    old.copy_(new)

        # Memory is taken once, and views are views of what is replayed.
        if schema.is_mutable or not (aliases or str(func).startswith("aten.empty")):
            self.work.append(again)
        return outputs


@dataclass
class FakeGraphs:
    """A backend of `Replays` for tests; `blocking` are operators that wait."""

    blocking: frozenset[str] = frozenset()
    elsewhere: bool = False
    free: int = 10**12
    recording: bool = False
    seen: Watch = field(default_factory=Watch)
    created: set[int] = field(default_factory=set)
    before: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    graphs: list[Graph] = field(default_factory=list)
    replays: list[int] = field(default_factory=list)
    turns: int = 0
    notes: _Notes | None = None

    def is_recording(self) -> bool:
        return self.elsewhere

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        self.seen = Watch(peak=1000)
        with _Notes(self):
            yield self.seen

    @contextmanager
    def session(self) -> Iterator[None]:
        self.created, self.before = set(), {}
        try:
            yield
        finally:
            if self.notes is not None:
                self._stop()
            for tensor, old in self.before.values():
                tensor.copy_(old)

    def begin(self) -> None:
        self.notes = _Notes(self)
        self.recording = True
        self.notes.__enter__()

    def end(self) -> Graph:
        work = self._stop()
        number = len(self.graphs)

        def replay() -> None:
            self.replays.append(number)
            # A device knows nothing of the modes of PyTorch.
            with torch.inference_mode():
                for one in work:
                    one()

        graph = Graph(replay, Nodes(kernels=len(work)))
        self.graphs.append(graph)
        return graph

    def _stop(self) -> list[Callable[[], None]]:
        assert self.notes is not None
        notes, self.notes = self.notes, None
        notes.__exit__(None, None, None)
        self.recording = False
        return notes.work

    def keep(self, args: Any, named: Any) -> None:
        """Note what memory held that the recording did not make."""
        for one in tree_leaves((args, named)):
            if not isinstance(one, torch.Tensor):
                continue
            if _memory(one) not in self.created | self.before.keys():
                whole = one.new_empty(0).set_(one.untyped_storage())
                self.before[_memory(one)] = whole, whole.clone()

    def without_owner(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def free_bytes(self) -> int:
        return self.free

    def pool_bytes(self) -> int:
        return 0

    def take_turn(self) -> None:
        self.turns += 1


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


IN_PLACE = ("keys", "values")
CAPTURE = Capture({"batch": (2, 4)}, in_place=IN_PLACE)


def loaded(
    module: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
    capture: Capture = CAPTURE,
    compiled: bool = False,
    **options: Any,
) -> Executor:
    """The executor of a toy's module, whose steps are captured on a fake device."""
    executor = next(
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Executor) and one is not Executor
    )
    monkeypatch.setattr(executor, "capture", capture)
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    step = module.load(toy, compile=compiled, **options)
    assert isinstance(step, Executor)
    return step
