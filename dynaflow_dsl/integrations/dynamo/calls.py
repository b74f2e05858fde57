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

# To how many sets of weights one graph is bound at a time.
_MOST_BOUND = 8


@dataclass(frozen=True, slots=True)
class _Bound:
    weights: tuple[torch.Tensor, ...]
    step: Step


class GraphCall:
    """Runs an executor with the inputs of a graph, and returns what the graph returns.

    Dynamo passes every weight in every call, and does not look which ones they are: it
    runs one graph for two models of a class, and after a parameter was replaced. An
    executor is bound to its weights. So they are compared by identity, which costs less
    than passing them on, and for others the executor is bound anew: to the last few
    that were given.

    Weights are bound in the first call, when Dynamo is not compiling any more.
    """

    __slots__ = ("_arguments", "_binds", "_bound", "_interface", "_known", "_positions")

    def __init__(self, interface: Interface, binds: Binds) -> None:
        self._interface = interface
        self._binds = binds
        self._positions = tuple(position for position, _ in interface.weights)
        self._arguments = interface.arguments
        self._bound: _Bound | None = None
        self._known: list[_Bound] = []

    def __call__(self, *given: Any) -> Sequence[Any]:
        """What the graph would return for its inputs. Raises InputError, LoadError."""
        bound = self._bound
        weights = [given[position] for position in self._positions]
        if bound is None or not all(map(is_, weights, bound.weights)):
            bound = self._bound = self._bind(weights)
        arguments = [
            _plain(given[place])
            if type(place) is int
            else [_plain(given[each]) for each in place]  # type: ignore[union-attr]
            for place in self._arguments
        ]
        returned = bound.step(*arguments)
        if isinstance(returned, torch.Tensor):
            returned = (returned,)
        outputs = self._interface.outputs
        if len(returned) == len(outputs):
            return returned  # type: ignore[no-any-return]
        results = iter(returned)
        return [_output(each, given, results) for each in outputs]

    def _bind(self, weights: Sequence[torch.Tensor]) -> _Bound:
        for known in self._known:
            if all(map(is_, weights, known.weights)):
                return known
        paths = (path for _, path in self._interface.weights)
        step = self._binds(dict(zip(paths, weights, strict=True)))
        bound = _Bound(tuple(weights), step)
        self._known = [*self._known[1 - _MOST_BOUND :], bound]
        return bound


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
