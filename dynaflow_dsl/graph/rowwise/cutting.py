"""Operators that take a part of a tensor, or take it apart."""

from __future__ import annotations

from dynaflow_dsl.graph.model import Argument, Size
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rule,
    Shared,
    moved,
    plain_integer,
)
from dynaflow_dsl.graph.rowwise.sizes import as_size, divide, mentions, whole_number

# What torch writes for "to the end".
_END = 2**62


def select(call: Call) -> Fact:
    """Take one place along an axis."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 1, "dim")
    if mentions(call.argument(2, "index"), call.dimension):
        raise RefusedError("selects by the size of the split dimension")
    if isinstance(fact, Shared):
        return fact
    if axis == fact.axis:
        raise RefusedError("selects one row of the split dimension")
    return moved(fact, fact.axis - (axis < fact.axis))


def slice_axis(call: Call) -> Fact:
    """Take a range of an axis; along the row axis all of it, or whole outer blocks."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 1, "dim")
    start, end = call.argument(2, "start"), call.argument(3, "end")
    step = call.argument(4, "step", 1)
    if isinstance(fact, Shared) or axis != fact.axis:
        if mentions((start, end, step), call.dimension):
            raise RefusedError("cuts another axis at the size of the split dimension")
        return fact
    size = source.shape[axis]
    to_end = end is None or (isinstance(end, int) and end >= _END)
    if start in (None, 0) and step == 1 and (to_end or as_size(end) == size):
        return fact
    block, blocks = divide(size, fact.outer), whole_number(fact.outer)
    first = 0 if start in (None, 0) else _blocks(start, block)
    last = blocks if to_end else _blocks(end, block)
    known = step == 1 and None not in (first, last, blocks)
    if known and (first or 0) < (last or 0) <= (blocks or 0):
        return moved(fact, axis, Size((last or 0) - (first or 0)))
    raise RefusedError("slices the split dimension")


def _blocks(bound: Argument, block: Size | None) -> int | None:
    """Count how many outer blocks lie before a bound, if it is a multiple."""
    size = as_size(bound)
    if size is None or block is None or size.factor < 0:
        return None
    return whole_number(divide(size, block))


def narrow(call: Call) -> Fact:
    """Take a range of an axis, given as start and length."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 1, "dim")
    start, length = call.argument(2, "start"), call.argument(3, "length")
    if isinstance(fact, Shared) or axis != fact.axis:
        if mentions((start, length), call.dimension):
            raise RefusedError("cuts another axis at the size of the split dimension")
        return fact
    if as_size(start) == as_size(0) and as_size(length) == source.shape[axis]:
        return fact
    raise RefusedError("narrows the split dimension")


def split(call: Call) -> Fact:
    """Cut an axis into pieces of one size; along the row axis into outer blocks."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 2, "dim")
    length = call.argument(1, "split_size")
    if isinstance(fact, Shared) or axis != fact.axis:
        if mentions(length, call.dimension):
            raise RefusedError("cuts another axis at the size of the split dimension")
        return fact
    size = as_size(length)
    pieces = None if size is None else whole_number(divide(source.shape[axis], size))
    return _outer_pieces(fact, pieces)


def chunk(call: Call) -> Fact:
    """Cut an axis into a number of pieces; along the row axis into outer blocks."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 2, "dim")
    if isinstance(fact, Shared) or axis != fact.axis:
        return fact
    return _outer_pieces(fact, plain_integer(call.argument(1, "chunks"), "chunks"))


def _outer_pieces(fact: Fact, pieces: int | None) -> Fact:
    if not isinstance(fact, Shared) and pieces:
        size = as_size(pieces)
        outer = None if size is None else divide(fact.outer, size)
        if outer is not None:
            return moved(fact, fact.axis, outer)
    raise RefusedError("splits the split dimension into pieces")


def split_by_sizes(call: Call) -> Fact:
    """Cut an axis into pieces of given sizes, at given places or of a given number."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 2, "dim")
    if not isinstance(fact, Shared) and axis == fact.axis:
        raise RefusedError("splits the split dimension into pieces")
    return fact


def unbind(call: Call) -> Fact:
    """Take an axis apart."""
    source, fact = call.tensor(), call.tensor().fact
    axis = call.axis(source.rank, 1, "dim")
    if isinstance(fact, Shared):
        return fact
    if axis == fact.axis:
        raise RefusedError("takes the rows of the split dimension apart")
    return moved(fact, fact.axis - (axis < fact.axis))


def unfold(call: Call) -> Fact:
    """Take sliding windows along an axis; the window becomes the last axis."""
    source, fact = call.tensor(), call.tensor().fact
    if not isinstance(fact, Shared) and fact.axis == call.axis(
        source.rank, 1, "dimension"
    ):
        raise RefusedError("takes windows over the split dimension")
    return fact


def diagonal(call: Call) -> Fact:
    """Take the diagonal of two axes, which becomes the last axis."""
    source, fact = call.tensor(), call.tensor().fact
    if isinstance(fact, Shared):
        return fact
    axes = (call.axis(source.rank, 2, "dim1"), call.axis(source.rank, 3, "dim2", 1))
    if fact.axis in axes:
        raise RefusedError("takes a diagonal across the split dimension")
    return moved(fact, fact.axis - sum(axis < fact.axis for axis in axes))


RULES = {
    "aten.select.int": Rule(select, sizes=True),
    "aten.slice.Tensor": Rule(slice_axis, sizes=True),
    "aten.narrow.default": Rule(narrow, sizes=True),
    "aten.split.Tensor": Rule(split, sizes=True),
    "aten.unsafe_split.Tensor": Rule(split, sizes=True),
    "aten.chunk.default": Rule(chunk),
    "aten.unsafe_chunk.default": Rule(chunk),
    "aten.split_with_sizes.default": Rule(split_by_sizes),
    "aten.split.sizes": Rule(split_by_sizes),
    "aten.tensor_split.sections": Rule(split_by_sizes),
    "aten.tensor_split.indices": Rule(split_by_sizes),
    "aten.unbind.int": Rule(unbind),
    "aten.unfold.default": Rule(unfold),
    "aten.diagonal.default": Rule(diagonal),
}
