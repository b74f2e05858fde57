"""How much memory operations take at once, counted on fake tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of what is made and alive; `peak` is the most at once.

    What operations are given and did not make is somebody else's.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._paused = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        self._note((args, named), mine=False)
        result = func(*args, **named)
        self._note(result, mine=not self._paused)
        return result

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is made meanwhile is somebody else's."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @contextmanager
    def apart(self) -> Iterator[list[int]]:
        """Gives the bytes that are taken meanwhile, at most at once."""
        before, peak = self.live, self.peak
        self.peak = before
        found: list[int] = []
        yield found
        found.append(self.peak - before)
        self.peak = max(peak, self.peak)

    def take(self, size: int) -> None:
        """As if that much were taken for a moment."""
        self.peak = max(self.peak, self.live + size)

    def forget(self, value: Any) -> None:
        """Who keeps these tensors is not what is measured."""
        for tensor in _tensors(value):
            key = tensor.untyped_storage()._cdata
            if key in self._known:
                reference, size = self._known[key]
                self._known[key] = reference, 0
                self.live -= size

    def _note(self, value: Any, *, mine: bool) -> None:
        for tensor in _tensors(value):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._known:
                size = int(storage.nbytes()) if mine else 0
                reference = weakref.ref(storage, partial(self._gone, key))
                self._known[key] = reference, size
                self.live += size
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int, _: object) -> None:
        self.live -= self._known.pop(key)[1]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (one for one in tree_leaves(value) if isinstance(one, torch.Tensor))
