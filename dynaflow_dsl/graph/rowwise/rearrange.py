"""Operators that join, repeat, pad or mask tensors by position."""

from __future__ import annotations

from collections.abc import Callable

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    Tensor,
    moved,
    only_rows,
    plain_integer,
)
from dynaflow_dsl.graph.rowwise.sizes import ONE, as_size, mentions


def _same_rows(tensors: tuple[Tensor, ...]) -> Rows:
    """Return the one way in which all tensors of a list are split."""
    facts = {only_rows(tensor) for tensor in tensors}
    rows = facts.pop()
    if rows is None or facts:
        raise RefusedError("joins tensors that are not all split along the same axis")
    return rows


def cat(call: Call) -> Fact:
    """Put tensors one after the other; along the row axis that adds outer blocks.

    A tensor of one axis and no elements is left out, whatever the others are.
    """
    tensors = tuple(
        tensor
        for tensor in call.tensor_list(0, "tensors")
        if tensor.shape != (Size(0),)
    )
    rows = _same_rows(tensors)
    if call.axis(tensors[0].rank, 1, "dim") != rows.axis:
        return rows
    if len({tensor.shape[rows.axis] for tensor in tensors}) > 1:
        raise RefusedError("concatenates different numbers of rows")
    return Rows(rows.axis, rows.outer * Size(len(tensors)))


def stack(call: Call) -> Fact:
    """Put tensors side by side on a new axis."""
    tensors = call.tensor_list(0, "tensors")
    rows = _same_rows(tensors)
    axis = call.axis(tensors[0].rank + 1, 1, "dim")
    return Rows(rows.axis + (axis <= rows.axis), rows.outer)


def repeat(call: Call) -> Fact:
    """Repeat the tensor along its axes; along the row axis that adds outer blocks."""
    source, fact = call.tensor(), call.tensor().fact
    counts = call.sizes(1, "repeats")
    if call.operation.operator == "aten.tile.default":
        counts = (ONE,) * (source.rank - len(counts)) + counts
    added = len(counts) - source.rank
    if isinstance(fact, Shared):
        axes = [i for i, count in enumerate(counts) if mentions(count, call.dimension)]
        return Rows(axes[0]) if len(axes) == 1 else fact
    axis = fact.axis + added
    return moved(fact, axis, counts[axis] * fact.outer)


def repeat_interleave(call: Call) -> Fact:
    """Repeat each place of an axis; along the row axis rows stay together."""
    source, fact = call.tensor(), call.tensor().fact
    if call.argument(2, "dim") is None:
        raise RefusedError("flattens the tensor and repeats what comes out")
    axis = call.axis(source.rank, 2, "dim")
    count = as_size(call.argument(1, "repeats"))
    if count is None:
        raise RefusedError("repeats a number of times that is no size")
    if isinstance(fact, Shared) and mentions(count, call.dimension):
        return Rows(axis, source.shape[axis])
    return fact


def flip(call: Call) -> Fact:
    """Reverse axes."""
    source, fact = call.tensor(), call.tensor().fact
    if not isinstance(fact, Shared) and fact.axis in call.axes(source.rank, 1, "dims"):
        raise RefusedError("reverses the rows of the split dimension")
    return fact


def roll(call: Call) -> Fact:
    """Move elements along axes, those of the end to the start."""
    source, fact = call.tensor(), call.tensor().fact
    axes = call.axes(source.rank, 2, "dims")
    if not isinstance(fact, Shared) and (not axes or fact.axis in axes):
        raise RefusedError("rolls the rows of the split dimension")
    return fact


def triangle(call: Call) -> Fact:
    """Zero what lies above or below the diagonal of the last two axes."""
    source, fact = call.tensor(), call.tensor().fact
    if not isinstance(fact, Shared) and fact.axis >= source.rank - 2:
        raise RefusedError("masks rows by their position in the split dimension")
    return fact


def pad(call: Call) -> Fact:
    """Add elements around the last axes, two numbers for each; none around rows."""
    source, fact = call.tensor(), call.tensor().fact
    amounts = call.integers(1, "pad") or ()
    if isinstance(fact, Shared):
        return fact
    first = 2 * (source.rank - 1 - fact.axis)
    if any(amounts[first : first + 2]):
        raise RefusedError("pads the split dimension")
    only_rows(call.tensor())
    return fact


def pad_last(axes: int) -> Callable[[Call], Fact]:
    """Make the rule of an operator that continues the last axes at their ends."""

    def apply(call: Call) -> Fact:
        rows = only_rows(call.tensor())
        if rows is not None and rows.axis >= call.tensor().rank - axes:
            raise RefusedError("pads the split dimension")
        return Shared() if rows is None else rows

    return apply


def channel_shuffle(call: Call) -> Fact:
    """Exchange channels, which are the second axis."""
    source, rows = call.tensor(), only_rows(call.tensor())
    if rows is not None and rows.axis == min(1, source.rank - 1):
        raise RefusedError("shuffles rows of the split dimension as channels")
    return Shared() if rows is None else rows


def pixel_shuffle(call: Call) -> Fact:
    """Exchange elements between the last three axes."""
    source, fact = call.tensor(), call.tensor().fact
    if not isinstance(fact, Shared) and fact.axis >= source.rank - 3:
        raise RefusedError("shuffles rows of the split dimension into pixels")
    return fact


def one_hot(call: Call) -> Fact:
    """Write each class number as a last axis of zeros and a one."""
    classes = plain_integer(call.argument(1, "num_classes", -1), "num_classes")
    if classes < 0:
        raise RefusedError("counts classes over all rows: give num_classes")
    only_rows(call.tensor())
    return call.tensor().fact


RULES = {
    "aten.cat.default": Rule(cat),
    "aten.concat.default": Rule(cat),
    "aten.concatenate.default": Rule(cat),
    "aten.stack.default": Rule(stack),
    "aten.repeat.default": Rule(repeat, sizes=True),
    "aten.tile.default": Rule(repeat, sizes=True),
    "aten.repeat_interleave.self_int": Rule(repeat_interleave, sizes=True),
    "aten.flip.default": Rule(flip),
    "aten.roll.default": Rule(roll),
    "aten.tril.default": Rule(triangle),
    "aten.triu.default": Rule(triangle),
    "aten.pad.default": Rule(pad),
    "aten.constant_pad_nd.default": Rule(pad),
    **{
        f"aten.{kind}_pad{axes}d.default": Rule(pad_last(axes))
        for kind in ("reflection", "replication")
        for axes in (1, 2, 3)
    },
    "aten.pixel_shuffle.default": Rule(pixel_shuffle),
    "aten.channel_shuffle.default": Rule(channel_shuffle),
    "aten.native_channel_shuffle.default": Rule(channel_shuffle),
    "aten.pixel_unshuffle.default": Rule(pixel_shuffle),
    "aten.one_hot.default": Rule(one_hot),
}
