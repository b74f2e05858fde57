"""The callable that runs an executor in place of a Dynamo graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.integrations.dynamo.model import Interface, Output

Step: TypeAlias = Callable[..., Any]

# Binds an executor to tensors by their paths in the model.
Binds: TypeAlias = Callable[[Mapping[str, torch.Tensor]], Step]

# To how many sets of weights an executor is bound at a time.
_MOST_BOUND = 8


@dataclass(frozen=True, slots=True)
class _Bound:
    weights: Mapping[str, torch.Tensor]
    step: Step


class Bindings:
    """An executor bound to sets of weights: to the last few that were given.

    Graphs that differ in nothing but Dynamo's guards share one.
    """

    __slots__ = ("_binds", "_known")

    def __init__(self, binds: Binds) -> None:
        self._binds = binds
        self._known: list[_Bound] = []

    def step(self, weights: Mapping[str, torch.Tensor]) -> Step:
        """The step for weights by their paths. Raises LoadError."""
        for known in self._known:
            if all(weights[path] is held for path, held in known.weights.items()):
                return known.step
        step = self._binds(weights)
        self._known = [*self._known[1 - _MOST_BOUND :], _Bound(weights, step)]
        return step


class GraphCall:
    """Runs an executor with the inputs of a graph, and returns what the graph returns.

    Dynamo passes every weight in every call, and does not look which ones they are: it
    runs one graph for two models of a class, and after a parameter was replaced. An
    executor is bound to its weights. So they are compared by identity in every call,
    which costs less than passing them on, and for others an executor is bound anew.

    Weights are bound in the first call, when Dynamo is not compiling any more.
    """

    __slots__ = ("_arguments", "_bindings", "_interface", "_positions", "_step")

    def __init__(self, interface: Interface, bindings: Bindings) -> None:
        self._interface = interface
        self._bindings = bindings
        self._positions = tuple(position for position, _ in interface.weights)
        self._arguments = interface.arguments
        self._step: tuple[list[torch.Tensor], Step] | None = None

    def __call__(self, *given: Any) -> Sequence[Any]:
        """What the graph would return for its inputs. Raises InputError, LoadError."""
        weights = [given[position] for position in self._positions]
        if self._step is None or not all(map(is_, weights, self._step[0])):
            paths = (path for _, path in self._interface.weights)
            by_path = dict(zip(paths, weights, strict=True))
            self._step = weights, self._bindings.step(by_path)
        _, step = self._step
        arguments = [
            _plain(given[place])
            if type(place) is int
            else [_plain(given[each]) for each in place]  # type: ignore[union-attr]
            for place in self._arguments
        ]
        returned = step(*arguments)
        if isinstance(returned, torch.Tensor):
            returned = (returned,)
        outputs = self._interface.outputs
        if len(returned) == len(outputs):
            return returned  # type: ignore[no-any-return]
        results = iter(returned)
        return [_output(each, given, results) for each in outputs]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in the layout that executors take, which the graph does not ask for."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _output(output: Output, given: Sequence[Any], results: Any) -> Any:
    if output.result is not None:
        return next(results)
    if output.factor is None:
        return output.value
    size = output.factor
    for place, axis in output.axes:
        size *= given[place].shape[axis]
    return size
