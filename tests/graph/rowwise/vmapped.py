"""The program of one row, for all rows at once: an oracle that never cuts a tensor.

`torch.func.vmap` runs the graph as it is for a batch of one, on every row, by batching
rules that torch has for its own operators. If rows are independent, that is what the
graph computes for the whole batch. It knows nothing of the rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch

from dynaflow_dsl.graph.model import Graph, Size
from tests.graph.rowwise.interpreter import (
    DIMENSION,
    Values,
    copied,
    run_operation,
    run_whole,
    same,
    values_of,
)

# Which of several values stays that are written to one place is left to chance, and
# batching rules write in another order.
_BY_CHANCE = ("index_put", "index_copy", "scatter", "masked_scatter")
ROWS = Size(1, (DIMENSION,))


class NotVmappedError(Exception):
    """Torch cannot batch one of the operations, or there is nothing to compare."""


def vmapped_difference(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> str | None:
    """Compare the whole batch with one row's program, mapped over rows: what differs.

    Looks at outputs whose rows are one axis, and at those without rows, which every row
    has to agree on. Raises NotVmappedError where that cannot be run.
    """
    if any(word in item.operator for item in graph.operations for word in _BY_CHANCE):
        raise NotVmappedError("values that are written to one place")
    types = {name: value.type.shape for name, value in values_of(graph).items()}
    names = list(inputs)
    if any(_spread(types[name]) for name in names):
        raise NotVmappedError("an input whose rows are no axis of their own")
    axes = [_axis(types[name]) for name in names]
    outputs = [name for name in graph.outputs if not _spread(types[name])]
    kept = [(name, _axis(types[name])) for name in outputs]
    if not kept:
        raise NotVmappedError("no output whose rows are an axis of their own")

    def one_row(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values: Values = {
            name: tensor if axis is None else tensor.unsqueeze(axis)
            for name, axis, tensor in zip(names, axes, given, strict=True)
        }
        for operation in graph.operations:
            run_operation(operation, values, 1)
        return tuple(
            values[name] if axis is None else values[name].squeeze(axis)
            for name, axis in kept
        )

    mapped = tuple(axes)
    if all(axis is None for axis in mapped):
        raise NotVmappedError("no input has rows")
    clean = copied(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rows = torch.func.vmap(one_row, in_dims=mapped)(
                *(tensor.clone() for tensor in inputs.values())
            )
        except (RuntimeError, AssertionError, ValueError, IndexError) as error:
            raise NotVmappedError(str(error)) from error
    whole = run_whole(graph, clean)
    for (name, axis), made in zip(kept, rows, strict=True):
        expected = whole[name]
        if axis is None:
            alike = all(same(expected, row) for row in made)
        else:
            alike = same(expected, made.movedim(0, axis))
        if not alike:
            return f"output {name} of one row's program differs"
    return None


def _axis(shape: tuple[Size, ...]) -> int | None:
    """The axis that is the split dimension."""
    return shape.index(ROWS) if ROWS in shape else None


def _spread(shape: tuple[Size, ...]) -> bool:
    """Whether the split dimension is in a shape, but not as one axis of its own."""
    found = [size for size in shape if DIMENSION in size.dimensions]
    return found not in ([], [ROWS])
