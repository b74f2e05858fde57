"""Collectives between ranks, which all hold the same rows of a microbatch."""

from __future__ import annotations

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    only_rows,
    plain_integer,
)
from dynaflow_dsl.graph.rowwise.sizes import divide


def elementwise(call: Call) -> Fact:
    """Each element is combined with the same element of other ranks."""
    only_rows(call.tensor(0, "input"))
    return call.tensor(0, "input").fact


def all_gather(call: Call) -> Fact:
    """The ranks' tensors one after the other along the first axis."""
    rows = only_rows(call.tensor(0, "input"))
    if rows is None or rows.axis != 0:
        return Shared() if rows is None else rows
    ranks = plain_integer(call.argument(1, "group_size"), "group_size")
    return Rows(0, Size(ranks) * rows.outer)


def reduce_scatter(call: Call) -> Fact:
    """The sum over ranks, of which each gets one piece along the first axis."""
    rows = only_rows(call.tensor(0, "input"))
    if rows is None or rows.axis != 0:
        return Shared() if rows is None else rows
    ranks = plain_integer(call.argument(2, "group_size"), "group_size")
    outer = divide(rows.outer, Size(ranks))
    if outer is None:
        raise RefusedError("scatters the rows of the split dimension over ranks")
    return Rows(0, outer)


RULES = {
    "_c10d_functional.all_reduce.default": Rule(elementwise),
    "_c10d_functional.wait_tensor.default": Rule(elementwise),
    "_c10d_functional.all_gather_into_tensor.default": Rule(all_gather),
    "_c10d_functional.reduce_scatter_tensor.default": Rule(reduce_scatter),
}
