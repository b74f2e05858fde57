"""The callable that runs an executor in place of a Dynamo graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

import torch

from dynaflow_dsl.integrations.dynamo.addresses import addresses_of, lie_at
from dynaflow_dsl.integrations.dynamo.model import Interface, Output

Step: TypeAlias = Callable[..., Any]

# Binds an executor to tensors by their paths in the model.
Binds: TypeAlias = Callable[[Mapping[str, torch.Tensor]], Step]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A step, the memory of the weights that it reads, and the tensors that came with
    that memory."""

    given: Mapping[str, ReferenceType[torch.Tensor]]
    weights: Mapping[str, torch.Tensor]
    step: Step

    def reads(self, weights: Mapping[str, torch.Tensor]) -> bool:
        """Whether these are the weights of the step."""
        return all(
            weights[path].data_ptr() == held.data_ptr()
            for path, held in self.weights.items()
        )

    @property
    def replaced(self) -> bool:
        """Whether nobody has these weights any more: a tensor is gone, or moved."""
        return any(
            (tensor := each()) is None
            or tensor.data_ptr() != self.weights[path].data_ptr()
            for path, each in self.given.items()
        )


class Bindings:
    """An executor bound to sets of weights.

    Graphs that differ in nothing but Dynamo's guards share one. Weights that were
    replaced are let go when those that replace them come.
    """

    __slots__ = ("_binds", "_known")

    def __init__(self, binds: Binds) -> None:
        self._binds = binds
        self._known: list[_Bound] = []

    def step(self, weights: Mapping[str, torch.Tensor]) -> Step:
        """The step for weights by their paths. Raises LoadError."""
        for known in self._known:
            if known.reads(weights):
                return known.step
        self._known = [each for each in self._known if not each.replaced]
        held = {path: tensor.detach() for path, tensor in weights.items()}
        step = self._binds(held)
        given = {path: ref(tensor) for path, tensor in weights.items()}
        self._known.append(_Bound(given, held, step))
        return step


class GraphCall:
    """Runs an executor with the inputs of a graph, and returns what the graph returns.

    Dynamo passes every weight in every call, and does not look which one it is: it runs
    one graph for two layers or models of a class, and after a parameter or its `data`
    was replaced. An executor is bound to the memory of its weights. So their addresses
    are compared in every call, and for others an executor is bound anew. Addresses are
    enough: Dynamo compares shapes, strides, dtypes and devices before it calls a graph.

    Weights are bound in the first call, when Dynamo is not compiling any more.
    """

    __slots__ = (
        "_arguments",
        "_bindings",
        "_bound",
        "_interface",
        "_positions",
        "_written",
    )

    def __init__(self, interface: Interface, bindings: Bindings) -> None:
        self._interface = interface
        self._bindings = bindings
        self._positions = [position for position, _ in interface.weights]
        self._arguments = interface.arguments
        self._written = interface.written
        self._bound: tuple[list[int | None], Step] | None = None

    def __call__(self, *given: Any) -> Sequence[Any]:
        """What the graph would return for its inputs. Raises InputError, LoadError."""
        bound = self._bound
        if bound is None or not lie_at(list(given), bound[0], self._positions):
            weights = {path: given[place] for place, path in self._interface.weights}
            step = self._bindings.step(weights)
            bound = self._bound = addresses_of(given, self._positions), step
        _, step = bound
        arguments = [
            self._plain(given, place)
            if type(place) is int
            else [self._plain(given, each) for each in place]  # type: ignore[union-attr]
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

    def _plain(self, given: Sequence[Any], place: int) -> torch.Tensor:
        """A tensor in the layout that executors take, which graphs do not ask for.

        A copy of one that is written would keep what is written to itself.
        """
        tensor: torch.Tensor = given[place]
        if place in self._written or tensor.is_contiguous():
            return tensor
        return tensor.contiguous()


def _output(output: Output, given: Sequence[Any], results: Any) -> Any:
    if output.result is not None:
        return next(results)
    if output.given is not None:
        return given[output.given]
    if output.factor is None:
        return output.value
    size = output.factor
    for place, axis in output.axes:
        size *= given[place].shape[axis]
    return size
