"""The parts of an executor as their text runs them, with the weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.executor_setup import Call
from dynaflow_dsl.runtime.model import Part, every_part
from dynaflow_dsl.runtime.weights import Weights, part_weights, record


@dataclass(frozen=True, slots=True)
class PartTexts:
    """The parts of an executor by name, and for each iteration of one:

    the function that the module has for it, its weights, and both together as a call.
    The `own` text of a part that is a kernel calls it.
    """

    parts: Mapping[str, Part]
    functions: Mapping[str, Sequence[Callable[..., Any]]]
    weights: Mapping[str, Sequence[Weights]]
    own: Mapping[str, Sequence[Call]]

    def text(self, name: str) -> Sequence[Call]:
        """Text that gives what a part gives: a kernel stands for that of another."""
        return self.own[self.parts[name].instead_of or name]

    def written(self) -> tuple[str, ...]:
        """Names of the parts that are no kernels."""
        return tuple(name for name, part in self.parts.items() if not part.kernel)


def part_texts(
    executor: type[Executor], tensors: Mapping[str, torch.Tensor], module: str
) -> PartTexts:
    """The parts of `executor` with a model's tensors.

    Raises LoadError (DFS801) for a tensor that the model has not.
    """
    parts = every_part(executor.parts())
    weights = {
        name: part_weights(name, part, tensors, module) for name, part in parts.items()
    }
    functions = {
        name: [part.function(position) for position in range(len(part.layers))]
        for name, part in parts.items()
    }
    own = {
        name: [
            partial(function, record(one))
            for function, one in zip(listed, weights[name], strict=True)
        ]
        for name, listed in functions.items()
    }
    return PartTexts(parts, functions, weights, own)
