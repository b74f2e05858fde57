"""What runs of a step gave, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from dynaflow_dsl.runtime.distances import (
    INFINITE,
    TOLERANCES,
    Distance,
    distance,
    usual_magnitude,
)
from dynaflow_dsl.verification.report import Comparison, Difference
from dynaflow_dsl.verification.state import BUFFER, ModelState, same_bits


def compare(
    batch: int,
    names: Sequence[str],
    what: str,
    given: Sequence[torch.Tensor],
    against: str,
    expected: Sequence[torch.Tensor],
    *,
    exact: bool,
    allowed: float | None = None,
    because: str = "",
) -> Comparison:
    """Compare two runs tensor by tensor: outputs first, then `names`: inputs, buffers.

    `allowed` is how far tensors may be apart instead of what is usual for their dtypes,
    and `because` says why. Tensors near zero are judged beside the usual magnitude
    of what is `expected`.
    """
    outputs = len(expected) - len(names)
    labels = [f"output[{k}]" if outputs > 1 else "output" for k in range(outputs)]
    labels += names
    difference: Difference | None = None
    largest = 0.0
    tolerances = [
        TOLERANCES.get(tensor.dtype, 0.0) if allowed is None else allowed
        for tensor in expected
    ]
    if len(given) != len(expected):
        message = f"number of outputs ({len(given) - len(names)})"
        difference = Difference(message, INFINITE.relative, INFINITE.absolute)
    around = usual_magnitude(expected)
    for label, one, other, tolerance in zip(
        labels, given, expected, tolerances, strict=False
    ):
        if exact and same_bits(one, other):
            continue
        found = distance(one, other, around)
        if exact:
            # Zeros may differ in their sign alone.
            found = Distance(found.absolute, max(found.relative, 1e-45))
        largest = max(largest, found.relative)
        if difference is None and (exact or not found.relative <= tolerance):
            difference = Difference(label, found.relative, found.absolute)
    return Comparison(
        batch=batch,
        what=what,
        against=against,
        tolerance=None if exact else max(tolerances, default=0.0),
        largest=largest,
        tensors=len(expected),
        outputs=outputs,
        inputs=sum(not name.startswith(BUFFER) for name in names),
        difference=difference,
        because=because,
    )


@dataclass(frozen=True, slots=True)
class Result:
    """What a run made: outputs, inputs afterwards, and buffers that it changed."""

    tensors: list[torch.Tensor]
    buffers: dict[str, torch.Tensor]


def run_on_copies(
    run: Callable[..., Any], arguments: Sequence[Any], state: ModelState
) -> Result:
    """A run on copies of the arguments and on the buffers as they were."""
    copies = copied(arguments)
    try:
        outputs = run(*copies)
        # An output may be a buffer, which is put back.
        made = [one.clone() for one in tensors_of(outputs)]
        return Result([*made, *tensors_of(copies)], state.effects())
    finally:
        state.restore()


def side_by_side(
    one: Result, other: Result, names: Sequence[str], state: ModelState
) -> tuple[list[str], list[torch.Tensor], list[torch.Tensor]]:
    """Labels behind the outputs, and the tensors of two runs in the same order."""
    left = state.completed(one.buffers, other.buffers)
    right = state.completed(other.buffers, one.buffers)
    return (
        [*names, *left],
        [*one.tensors, *left.values()],
        [*other.tensors, *right.values()],
    )


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in a result, or in arguments."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def copied(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments of a step with their tensors copied."""
    copies: tuple[Any, ...] = tree_map(
        lambda one: one.clone() if isinstance(one, torch.Tensor) else one,
        tuple(arguments),
    )
    return copies
