"""The memory that a step of some sizes takes, before any has run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.live_memory import LiveMemory
from dynaflow_dsl.runtime.variants import observe
from dynaflow_dsl.runtime.weights import Weights


@dataclass(frozen=True, slots=True)
class Estimator:
    """Runs steps of an executor on fake tensors and counts what is alive at once.

    It is the text that runs, each distinct part once. What is compiled of it keeps less
    between its operations, so that the number is a bound.
    """

    executor: type[Executor]
    functions: Mapping[str, Sequence[Callable[..., Any]]]
    weights: Mapping[str, Sequence[Weights]]
    device: torch.device
    _known: dict[tuple[tuple[int, ...], bool], int | None] = field(default_factory=dict)

    def __call__(self, sizes: Mapping[str, int], *, unsplit: bool) -> int | None:
        """Bytes of a step; None where fake tensors are not enough to run it."""
        key = tuple(sizes.values()), unsplit
        if key not in self._known:
            self._known[key] = self._run(sizes, unsplit=unsplit)
        return self._known[key]

    def _run(self, sizes: Mapping[str, int], *, unsplit: bool) -> int | None:
        memory = LiveMemory()
        given = self.executor, self.functions, self.weights, self.device
        try:
            observe(*given, sizes, unsplit, memory)
        except Exception:  # operators of others, which know no fake tensors
            return None
        return memory.peak
