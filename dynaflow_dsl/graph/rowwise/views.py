"""Operators that show the same elements under another shape."""

from __future__ import annotations

from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    front_axis,
    moved,
)
from dynaflow_dsl.graph.rowwise.pointwise import identity
from dynaflow_dsl.graph.rowwise.sizes import (
    ONE,
    divide,
    mentions,
    product,
    shape_text,
)


def reshape(call: Call) -> Fact:
    """Split and merge axes in row-major order.

    The number of elements before one row is kept: it is `outer` times the axes to the
    left, before and after.
    """
    source, shape, fact = call.tensor(), call.shape(), call.tensor().fact
    if isinstance(fact, Shared):
        return fact
    left = product(source.shape[: fact.axis]) * fact.outer
    for axis, size in enumerate(shape):
        if call.dimension not in size.dimensions:
            continue
        outer = divide(left, product(shape[:axis]))
        if outer is None:
            break
        if source.sliced and divide(fact.outer, outer) is None:
            _refuse_gaps(call)
        return moved(fact, axis, outer)
    raise RefusedError(
        f"views {shape_text(source.shape)} as {shape_text(shape)}, "
        "which cuts through rows of the split dimension"
    )


# They never copy.
_ONLY_VIEWS = ("aten.view.default", "aten.view_as.default", "aten._unsafe_view.default")


def _refuse_gaps(call: Call) -> None:
    """Refuse to merge the row axis of a slice with an axis to its left.

    The slice has gaps there. A view fails on it; other operators copy where the whole
    batch is only viewed, which shows once somebody writes.
    """
    strict = call.operation.operator in _ONLY_VIEWS
    if strict or call.tensor().written:
        raise RefusedError(
            "merges the split dimension with an axis before it, which a slice of the "
            "whole tensor does not allow"
        )


def contiguous(call: Call) -> Fact:
    """The same elements; a slice with gaps is copied where the whole is not."""
    source, fact = call.tensor(), identity(call)
    if isinstance(fact, Shared) or not (source.sliced and source.written):
        return fact
    if any(size != ONE for size in source.shape[: fact.axis]):
        raise RefusedError("copies a slice of a tensor that is also written in place")
    return fact


def permute(call: Call) -> Fact:
    """Put the axes into another order."""
    source, fact = call.tensor(), call.tensor().fact
    if isinstance(fact, Shared):
        return fact
    order = call.axes(source.rank, 1, "dims")
    if sorted(order) != list(range(source.rank)):
        raise RefusedError("permutes axes in an order that names one twice")
    return moved(fact, order.index(fact.axis))


def transpose(call: Call) -> Fact:
    """Exchange two axes."""
    rank = call.tensor().rank
    return _exchange(
        call.tensor().fact, call.axis(rank, 1, "dim0"), call.axis(rank, 2, "dim1")
    )


def transpose_last(call: Call) -> Fact:
    """Exchange the last two axes; a vector stays as it is."""
    rank = call.tensor().rank
    if rank < 2:
        return call.tensor().fact
    return _exchange(call.tensor().fact, rank - 2, rank - 1)


def reverse_axes(call: Call) -> Fact:
    """Put the axes into reverse order."""
    source, fact = call.tensor(), call.tensor().fact
    return (
        fact if isinstance(fact, Shared) else moved(fact, source.rank - 1 - fact.axis)
    )


def _exchange(fact: Fact, one: int, other: int) -> Fact:
    if isinstance(fact, Shared):
        return fact
    return moved(fact, {one: other, other: one}.get(fact.axis, fact.axis))


def movedim(call: Call) -> Fact:
    """Move some axes to new places; the others keep their order."""
    source, fact = call.tensor(), call.tensor().fact
    if isinstance(fact, Shared):
        return fact
    origins = call.axes(source.rank, 1, "source")
    targets = call.axes(source.rank, 2, "destination")
    if len(set(origins)) != len(origins) or len(set(targets)) != len(origins):
        raise RefusedError("moves one axis to two places")
    placed = dict(zip(targets, origins, strict=True))
    rest = iter([axis for axis in range(source.rank) if axis not in origins])
    order = [placed[i] if i in placed else next(rest) for i in range(source.rank)]
    return moved(fact, order.index(fact.axis))


def unsqueeze(call: Call) -> Fact:
    """Add an axis of size 1."""
    source, fact = call.tensor(), call.tensor().fact
    if isinstance(fact, Shared):
        return fact
    axis = call.axis(source.rank + 1, 1, "dim")
    return moved(fact, fact.axis + (axis <= fact.axis))


def squeeze(call: Call) -> Fact:
    """Remove axes of size 1; never the row axis, even for microbatches of one row."""
    source, fact = call.tensor(), call.tensor().fact
    if isinstance(fact, Shared):
        return fact
    axes = call.axes(source.rank, 1, "dim")
    if fact.axis in axes:
        raise RefusedError("removes the split dimension from a microbatch of one row")
    gone = [axis for axis in axes if source.shape[axis] == ONE]
    return moved(fact, fact.axis - sum(axis < fact.axis for axis in gone))


def squeeze_all(call: Call) -> Fact:
    """Remove every axis of size 1: in a microbatch of one row that is the row axis."""
    if isinstance(call.tensor().fact, Shared):
        return call.tensor().fact
    raise RefusedError(
        "removes all axes of size 1, also the split one of a microbatch of one row"
    )


def expand(call: Call) -> Fact:
    """Repeat axes of size 1."""
    source, shape, fact = call.tensor(), call.shape(), call.tensor().fact
    added = len(shape) - source.rank
    if isinstance(fact, Shared):
        axes = [i for i, size in enumerate(shape) if mentions(size, call.dimension)]
        return Rows(axes[0]) if len(axes) == 1 else fact
    axis = fact.axis + added
    if axis < 0 or source.shape[fact.axis] != shape[axis]:
        raise RefusedError("expands the split dimension")
    return moved(fact, axis)


def complex_from_real(call: Call) -> Fact:
    """Read the last axis, of size 2, as complex numbers."""
    source, fact = call.tensor(), call.tensor().fact
    if not isinstance(fact, Shared) and fact.axis == front_axis(-1, source.rank):
        raise RefusedError("makes complex numbers out of two rows")
    return fact


def real_from_complex(call: Call) -> Fact:
    """Show complex numbers as a last axis of size 2."""
    return call.tensor().fact


_shapes = Rule(reshape, sizes=True)

RULES = {
    "aten._reshape_copy.default": _shapes,
    "aten._unsafe_view.default": _shapes,
    "aten.flatten.using_ints": Rule(reshape),
    "aten.reshape.default": _shapes,
    "aten.reshape_as.default": Rule(reshape),
    "aten.unflatten.int": _shapes,
    "aten.view.default": _shapes,
    "aten.view_as.default": Rule(reshape),
    "aten.contiguous.default": Rule(contiguous),
    "aten.permute.default": Rule(permute),
    "aten.transpose.int": Rule(transpose),
    "aten.swapaxes.default": Rule(transpose),
    "aten.swapdims.default": Rule(transpose),
    "aten.t.default": Rule(transpose_last),
    "aten.mT.default": Rule(transpose_last),
    "aten.numpy_T.default": Rule(reverse_axes),
    "aten.movedim.int": Rule(movedim),
    "aten.movedim.intlist": Rule(movedim),
    "aten.moveaxis.int": Rule(movedim),
    "aten.moveaxis.intlist": Rule(movedim),
    "aten.unsqueeze.default": Rule(unsqueeze),
    "aten.squeeze.default": Rule(squeeze_all),
    "aten.squeeze.dim": Rule(squeeze),
    "aten.squeeze.dims": Rule(squeeze),
    "aten.expand.default": Rule(expand, sizes=True),
    "aten.expand_as.default": Rule(expand),
    "aten.broadcast_to.default": Rule(expand, sizes=True),
    "aten.view_as_complex.default": Rule(complex_from_real),
    "aten.view_as_real.default": Rule(real_from_complex),
}
