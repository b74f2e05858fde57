"""How much memory operations take at once, counted on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
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
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}
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
        self._drop()
        before, peak = self.live, self.peak
        self.peak = before
        found: list[int] = []
        yield found
        found.append(self.peak - before)
        self.peak = max(peak, self.peak)

    def take(self, size: int) -> None:
        """As if that much were taken for a moment."""
        self._drop()
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
        self._drop()
        for tensor in _tensors(value):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                size = int(storage.nbytes()) if mine else 0
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._known[storage._cdata] = reference, size
                self.live += size
        self.peak = max(self.peak, self.live)

    def _drop(self) -> None:
        gone = [
            key
            for key, (reference, _) in self._known.items()
            if reference.expired()  # type: ignore[no-untyped-call]
        ]
        for key in gone:
            self.live -= self._known.pop(key)[1]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (one for one in tree_leaves(value) if isinstance(one, torch.Tensor))
