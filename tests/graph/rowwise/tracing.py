"""Graphs of small functions, traced as models are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.trace import Entry, TraceSpec, trace

ROWS = 5
Function = Callable[..., Any]


@dataclass(frozen=True)
class Given:
    """An input: its shape, where "batch" is the split dimension, and its content.

    `below` makes random integers below a number, `flags` random booleans; otherwise
    content is random floats.
    """

    shape: tuple[int | str, ...]
    below: int | None = None
    flags: bool = False

    def tensor(self, batch: int) -> torch.Tensor:
        shape = tuple(batch if size == "batch" else int(size) for size in self.shape)
        if self.flags:
            return torch.rand(shape) > 0.5
        if self.below is not None:
            return torch.randint(0, self.below, shape)
        return torch.randn(shape)


def rows(*shape: int | str) -> Given:
    """Floats with the split dimension in front."""
    return Given(("batch", *shape))


def shared(*shape: int | str) -> Given:
    """Floats of any shape."""
    return Given(shape)


def whole_numbers(below: int, *shape: int | str) -> Given:
    """Integers of any shape."""
    return Given(shape, below=below)


def flags(*shape: int | str) -> Given:
    """Booleans of any shape."""
    return Given(shape, flags=True)


class _Wrapper(torch.nn.Module):
    """A function as a module whose arguments are called a, b, c, ..."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function


class _One(_Wrapper):
    def forward(self, a: Any) -> Any:
        return self.function(a)


class _Two(_Wrapper):
    def forward(self, a: Any, b: Any) -> Any:
        return self.function(a, b)


class _Three(_Wrapper):
    def forward(self, a: Any, b: Any, c: Any) -> Any:
        return self.function(a, b, c)


class _Four(_Wrapper):
    def forward(self, a: Any, b: Any, c: Any, d: Any) -> Any:
        return self.function(a, b, c, d)


def traced(function: Function, given: Sequence[Given]) -> Graph:
    """Trace a function of one to four tensors with a batch of any size."""
    wrapper = (_One, _Two, _Three, _Four)[len(given) - 1]
    names = "abcd"[: len(given)]

    def arguments(sizes: Mapping[str, int]) -> tuple[Any, ...]:
        return tuple(item.tensor(sizes["batch"]) for item in given)

    spec = TraceSpec(
        model=wrapper(function).eval(),
        entries={"run": Entry(arguments)},
        dims={
            name: tuple("batch" if size == "batch" else None for size in item.shape)
            for name, item in zip(names, given, strict=True)
        },
        dimensions={"batch": (1, None)},
    )
    result = trace(spec, "tests", {})
    assert result.value is not None, result.diagnostics
    return result.value.graphs[0]


def inputs_for(graph: Graph, given: Sequence[Given]) -> dict[str, torch.Tensor]:
    """Fresh inputs of five rows, constants included."""
    found: dict[str, torch.Tensor] = {}
    for item in graph.inputs:
        if item.argument is None:
            dtype = getattr(torch, item.value.type.dtype)
            found[item.value.name] = torch.tensor(item.data, dtype=dtype)
        else:
            found[item.value.name] = given[item.argument].tensor(ROWS)
    return found
