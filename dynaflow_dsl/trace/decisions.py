"""Decisions by sizes that a model takes otherwise where a dimension is 1.

Torch traces a dynamic dimension as if it were never 1, and does not say where the
model's code asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

import torch

from dynaflow_dsl.trace.arguments import lowest_sizes
from dynaflow_dsl.trace.export import Decision, Node, OpOverload, bound_arguments
from dynaflow_dsl.trace.failures import refuse_one
from dynaflow_dsl.trace.lines import line_of_stack, source_line
from dynaflow_dsl.trace.normalise import base_name
from dynaflow_dsl.trace.program import Program, refuse_size
from dynaflow_dsl.trace.sizes import UnnamedSize

_SQUEEZES = ("aten.squeeze", "aten.squeeze_")


def check_decisions(
    entry: str,
    decisions: Iterable[Decision],
    symbols: Mapping[str, str],
    sizes: Mapping[str, int],
    lowest: Mapping[str, int],
) -> None:
    """Refuse a model whose traced graph is not what it computes for a size of 1.

    `symbols` says which dimension each symbol stands for, `sizes` which size that had
    while it was traced, and `lowest` which is its least. All other decisions that hold
    for some sizes only are torch's to refuse.
    """
    for decision in decisions:
        names = [name for name in sorted(decision.symbols) if name in symbols]
        if len(names) < len(decision.symbols):
            continue
        dimensions = [symbols[name] for name in names]
        choices = [
            (sizes[dimension], 1) if lowest[dimension] == 1 else (sizes[dimension],)
            for dimension in dimensions
        ]
        for chosen in product(*choices):
            if decision.holds(dict(zip(names, chosen, strict=True))):
                continue
            pairs = zip(dimensions, chosen, strict=True)
            ones = [dimension for dimension, size in pairs if size == 1]
            if ones:
                place = decision.place
                refuse_one(entry, ones[0], source_line(*place) if place else None)


def check_squeezes(state: Program, nodes: Iterable[Node]) -> None:
    """Refuse to take an axis away where its dimension is 1.

    Torch traces such a call as one that changes nothing.
    """
    lowest = lowest_sizes(state.spec)
    for node in nodes:
        operator = node.target
        if not isinstance(operator, OpOverload) or base_name(operator) not in _SQUEEZES:
            continue
        bound = bound_arguments(node, operator)
        squeezed = bound["self"]
        assert isinstance(squeezed, Node)
        shape = squeezed.meta["val"].shape
        axes = bound.get("dim", range(len(shape)))
        for axis in [axes] if isinstance(axes, int) else list(axes):  # type: ignore[call-overload]
            if not isinstance(shape[axis], torch.SymInt):
                continue
            try:
                size = state.sizes.size(shape[axis])
            except UnnamedSize as unnamed:
                refuse_size(str(unnamed), node)
            if size.factor * prod(lowest[name] for name in size.dimensions) == 1:
                refuse_one(
                    state.entry,
                    size.dimensions[0],
                    line_of_stack(node.meta.get("stack_trace")),
                    ("name the axes that are always 1 when you call squeeze",),
                )
