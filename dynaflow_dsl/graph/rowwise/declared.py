"""Operators whose rows a plug-in declares."""

from __future__ import annotations

from dynaflow_dsl.graph.model import Argument, Reference
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    Tensor,
    front_axis,
    only_rows,
)
from dynaflow_dsl.graph.rowwise.sizes import ONE
from dynaflow_dsl.operations.rows import OperationRows


def declared_rule(rows: OperationRows) -> Rule:
    """Make the rule of an operator from its declaration.

    What it says is held against the operands; whether it is true, numbers say.
    """

    def apply(call: Call) -> tuple[Fact, ...]:
        name = call.operation.operator
        sizes = set()
        for position, argument in enumerate(call.operation.arguments):
            axis = (rows.arguments + (None,) * (position + 1))[position]
            for tensor in _tensors(argument, call):
                size = _size(f"argument {position} of {name}", tensor, axis)
                sizes.add(size)
        for key, argument in call.operation.keywords:
            for tensor in _tensors(argument, call):
                _size(f"argument {key} of {name}", tensor, None)
        sizes.discard(None)
        if len(sizes) != 1:
            raise RefusedError(f"{name} is given different numbers of rows")
        results = call.operation.results
        if len(results) != len(rows.results):
            raise RefusedError(
                f"{name} has {len(results)} results, and its declaration "
                f"{len(rows.results)}"
            )
        facts: list[Fact] = []
        for value, axis in zip(results, rows.results, strict=True):
            if value is None or axis is None:
                facts.append(Shared())
                continue
            shape = value.type.shape
            if not -len(shape) <= axis < len(shape):
                raise RefusedError(f"a result of {name} has no axis {axis}")
            place = front_axis(axis, len(shape))
            if shape[place] not in sizes:
                raise RefusedError(f"a result of {name} has another number of rows")
            facts.append(Rows(place))
        return tuple(facts)

    return Rule(apply, in_place=True, declared=True)


def _tensors(argument: Argument, call: Call) -> list[Tensor]:
    match argument:
        case Reference(name):
            return [call.tensors[name]]
        case tuple():
            return [tensor for item in argument for tensor in _tensors(item, call)]
        case _:
            return []


def _size(what: str, tensor: Tensor, axis: int | None) -> object:
    """The number of rows of an operand, None where it has none and may have none."""
    rows = only_rows(tensor)
    if axis is None:
        if rows is not None:
            raise RefusedError(f"{what} is declared to be the same for all rows")
        return None
    if not -tensor.rank <= axis < tensor.rank:
        raise RefusedError(f"{what} has no axis {axis}, where its rows are declared")
    if rows is None or rows.axis != front_axis(axis, tensor.rank):
        raise RefusedError(f"{what} is not split along axis {axis}, as is declared")
    if rows.outer != ONE:
        raise RefusedError(f"rows of {what} do not lie together")
    return tensor.shape[rows.axis]
