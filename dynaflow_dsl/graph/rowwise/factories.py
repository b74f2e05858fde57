"""Operators that make tensors from numbers."""

from __future__ import annotations

from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    RowNumbers,
    Rows,
    Rule,
    Shared,
    fact_of_shape,
)
from dynaflow_dsl.graph.rowwise.sizes import as_size, mentions

_SIZE_AS_DATA = "uses the size of the split dimension as a number"


def filled(call: Call) -> Fact:
    """Constant content in any shape: with the split dimension in it, rows."""
    first = 1 if call.operation.operator.startswith("aten.new_") else 0
    rest = call.operation.arguments[first + 1 :]
    named = tuple(item for name, item in call.operation.keywords if name != "size")
    if mentions((*rest, *named), call.dimension):
        raise RefusedError(_SIZE_AS_DATA)
    fact = fact_of_shape(call.shape(), call.dimension)
    if fact is None:
        raise RefusedError("makes a tensor that has the split dimension twice")
    return fact


def like(call: Call) -> Fact:
    """Constant content in the shape of another tensor."""
    match call.tensor().fact:
        case RowNumbers(axis, outer):
            return Rows(axis, outer)
        case fact:
            return fact


def arange(call: Call) -> Fact:
    """Numbers in sequence; up to the split dimension they are row numbers."""
    values = call.operation.arguments
    match values:
        case (end,):
            start, step = 0, 1
        case (int(start), end):
            step = 1
        case (int(start), end, int(step)):
            pass
        case _:
            end, start, step = None, 1, 1
    result = call.result()
    if not mentions(values, call.dimension) and (
        result is None or not mentions(result.type.shape, call.dimension)
    ):
        return Shared()
    exact = as_size(end) == call.rows and start == 0 and step == 1
    if not exact or result is None or result.type.dtype not in ("int32", "int64"):
        raise RefusedError(_SIZE_AS_DATA)
    return RowNumbers(0)


def shared(call: Call) -> Fact:
    """Positions or sequences that have no rows."""
    return Shared()


_FILLED = """
    full.default zeros.default ones.default empty.memory_format new_zeros.default
    new_ones.default new_full.default new_empty.default
"""
_LIKE = "zeros_like.default ones_like.default empty_like.default full_like.default"
_SHARED = "scalar_tensor.default eye.default eye.m linspace.default"

RULES = {
    **{f"aten.{name}": Rule(filled, sizes=True) for name in _FILLED.split()},
    **{f"aten.{name}": Rule(like) for name in _LIKE.split()},
    **{f"aten.{name}": Rule(shared) for name in _SHARED.split()},
    "aten.arange.default": Rule(arange, sizes=True),
    "aten.arange.start": Rule(arange, sizes=True),
    "aten.arange.start_step": Rule(arange, sizes=True),
}
