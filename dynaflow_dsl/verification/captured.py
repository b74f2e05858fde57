"""Runs steps as CUDA graphs although every run of a verification has its own inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from dynaflow_dsl.runtime.executor import Executor

# The first step of a size is run and recorded, the others are replayed.
STEPS = 3


class Captured:
    """A step that is replayed, for any arguments.

    Inputs that graphs use in place are copied to memory that stays, and back after the
    last of several equal steps. `restore` puts back what steps change elsewhere.
    """

    def __init__(self, executor: Executor, restore: Callable[[], None]) -> None:
        assert executor.capture is not None
        self._executor = executor
        self._restore = restore
        names = executor.capture.in_place
        self._kept = [name in names for name in executor.inputs]
        self._memory: dict[tuple[torch.Size, ...], list[Any]] = {}

    @property
    def refused(self) -> dict[str, str]:
        """Sizes that could not be captured, and why."""
        return dict(self._executor.report().refused)

    def __call__(self, *arguments: Any, phases: Mapping[str, int] | None = None) -> Any:
        """The result of the last step; arguments then hold what it wrote."""
        shapes = tuple(one.shape for one in tree_leaves(arguments))
        if shapes not in self._memory:
            self._memory[shapes] = [
                tree_map(torch.clone, one) if kept else one
                for one, kept in zip(arguments, self._kept, strict=True)
            ]
        memory = self._memory[shapes]
        given = [
            own if kept else one
            for own, one, kept in zip(memory, arguments, self._kept, strict=True)
        ]
        result: Any = None
        for number in range(STEPS):
            if number:
                self._restore()
            _copy(given, arguments)
            result = self._executor(*given, phases=phases)
        _copy(arguments, given)
        return result


def _copy(targets: Any, sources: Any) -> None:
    pairs = zip(tree_leaves(list(targets)), tree_leaves(list(sources)), strict=True)
    for target, source in pairs:
        if target is not source:
            target.copy_(source)
