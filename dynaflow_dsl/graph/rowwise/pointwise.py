"""Operators that compute each element from the elements at the same place."""

from __future__ import annotations

from collections.abc import Sequence

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    RowNumbers,
    Rows,
    Rule,
    Shared,
    Tensor,
    only_rows,
)
from dynaflow_dsl.graph.rowwise.sizes import ONE

# Tagged `pointwise`, but they compare whole tensors or draw random numbers.
NOT_POINTWISE = frozenset({"aten.equal.default", "aten.rrelu.default"})

# Pointwise operators that carry no tag (checked against the operator list of 2.13).
_UNTAGGED = """
    aten.__and__.Scalar aten.__and__.Tensor aten.__or__.Scalar aten.__or__.Tensor
    aten.__iand__.Scalar aten.__iand__.Tensor aten.__ior__.Scalar aten.__ior__.Tensor
    aten.absolute.default aten.arctan.default aten.arctan2.default
    aten.bitwise_and.Scalar_Tensor aten.copy.default aten.copy_.default
    aten.divide.Scalar aten.divide.Tensor aten.eq_.Scalar aten.eq_.Tensor
    aten.fill.Scalar aten.fill.Tensor aten.fill_.Scalar aten.fill_.Tensor
    aten.floor_divide.Scalar aten.floor_divide.default aten.floor_divide_.Tensor
    aten.ge_.Scalar aten.ge_.Tensor aten.greater.Scalar aten.greater.Tensor
    aten.greater_equal.Scalar aten.greater_equal.Tensor aten.gt_.Scalar aten.gt_.Tensor
    aten.hardswish.default aten.hardswish_.default aten.imag.default
    aten.isclose.default aten.le_.Scalar aten.le_.Tensor aten.less.Scalar
    aten.less.Tensor aten.less_equal.Scalar aten.less_equal.Tensor
    aten.log_sigmoid.default aten.lt_.Scalar aten.lt_.Tensor
    aten.masked_fill.Scalar aten.masked_fill.Tensor aten.masked_fill_.Scalar
    aten.masked_fill_.Tensor aten.mish_.default aten.multiply.Scalar
    aten.multiply.Tensor aten.ne_.Scalar aten.ne_.Tensor aten.negative.default
    aten.not_equal.Scalar aten.not_equal.Tensor aten.real.default
    aten.softplus.default aten.special_expit.default aten.special_erf.default
    aten.special_exp2.default aten.special_log1p.default aten.sub_.Scalar
    aten.subtract.Scalar aten.subtract.Tensor aten.true_divide.Scalar
    aten.true_divide.Tensor aten.where.Scalar aten.where.ScalarOther
    aten.where.ScalarSelf aten.where.self aten.zero.default aten.zero_.default
"""

# The result is the first operand, in another dtype, layout or place.
_IDENTITY = """
    aten._to_copy.default aten.alias.default aten.clone.default aten.detach.default
    aten.lift_fresh_copy.default aten.to.device aten.to.dtype aten.to.dtype_layout
    aten.to.other aten.type_as.default
"""


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Return the shape that these shapes broadcast to."""
    if shapes and all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for back in range(rank, 0, -1):
        sizes = {shape[-back] for shape in shapes if len(shape) >= back} - {ONE}
        if len(sizes) > 1:
            raise RefusedError("broadcasts sizes that are not known to be equal")
        result.append(sizes.pop() if sizes else ONE)
    return tuple(result)


def align(
    operands: Sequence[tuple[tuple[Size, ...], Fact]], shape: tuple[Size, ...]
) -> Fact:
    """Return how tensors that are broadcast to `shape` are split together.

    Rows have to come to lie on one axis; an operand without rows has to be the same
    for all of them, so it has size 1 there or lacks the axis.
    """
    together: Rows | None = None
    for own, fact in operands:
        match fact:
            case RowNumbers():
                raise RefusedError(
                    "uses the row numbers of the split dimension as data, "
                    "which start again in each microbatch"
                )
            case Rows():
                axis = fact.axis + len(shape) - len(own)
                if axis < 0 or own[fact.axis] != shape[axis]:
                    raise RefusedError("broadcasts the rows of the split dimension")
                placed = Rows(axis, fact.outer)
                if together not in (None, placed):
                    raise RefusedError(
                        "combines tensors whose rows lie along different axes"
                    )
                together = placed
            case Shared():
                pass
    if together is None:
        return Shared()
    for own, fact in operands:
        axis = together.axis - (len(shape) - len(own))
        if isinstance(fact, Shared) and axis >= 0 and own[axis] != ONE:
            raise RefusedError(
                "combines rows with a tensor that has other entries along that axis"
            )
    return together


def pointwise(call: Call) -> Fact:
    """Each element of the result depends on the elements that broadcast to it."""
    operands = [(tensor.shape, tensor.fact) for tensor in call.tensors.values()]
    shape = broadcast([own for own, _ in operands])
    live = [value for value in call.operation.results if value is not None]
    # An operator that changes the shape is not pointwise, whatever its tag says.
    if any(value.type.shape != shape for value in live):
        raise RefusedError("does not keep the shape of its operands")
    if call.operation.writes and call.tensor().shape != shape:
        raise RefusedError("writes a tensor that is smaller than what it is given")
    return align(operands, shape)


def identity(call: Call) -> Fact:
    """The same elements at the same places."""
    source = call.tensor()
    result = call.result()
    if result is not None and result.type.shape != source.shape:
        raise RefusedError("does not keep the shape of its operand")
    # A narrow integer or a float wraps or rounds large row numbers.
    if (
        isinstance(source.fact, RowNumbers)
        and result is not None
        and result.type.dtype not in ("int32", "int64")
    ):
        only_rows(source)
    return source.fact


def dropout(call: Call) -> Fact:
    """Dropout is the identity when it is off."""
    training = call.argument(2, "train")
    if training is not False and call.argument(1, "p") != 0:
        raise RefusedError("drops elements at random: dropout is on")
    only_rows(call.tensor(0, "input"))
    return call.tensor(0, "input").fact


def bucketize(call: Call) -> Fact:
    """Each element is looked up in one sorted list."""
    boundaries: Tensor = call.tensor(1, "boundaries")
    if only_rows(boundaries) is not None:
        raise RefusedError("looks rows up in boundaries that are split")
    only_rows(call.tensor())
    return call.tensor().fact


def search(call: Call) -> Fact:
    """Each element is looked up in the one sorted list, or in the list of its row."""
    lists, values = call.tensor(0, "sorted_sequence"), call.tensor(1, "self")
    if call.optional(99, "sorter") is not None:
        raise RefusedError("looks rows up in lists sorted by another tensor")
    known, rows = only_rows(lists), only_rows(values)
    if known is None and lists.rank == 1:
        return Shared() if rows is None else rows
    # The leading axes are those of the lists, one for one.
    if known != rows or known is None or known.axis == lists.rank - 1:
        raise RefusedError("looks rows up in lists that are not split alike")
    return known


RULES = {
    **{name: Rule(pointwise, in_place=True) for name in _UNTAGGED.split()},
    **{name: Rule(identity) for name in _IDENTITY.split()},
    "aten.dropout.default": Rule(dropout, chance=True),
    "aten.bucketize.Tensor": Rule(bucketize),
    "aten.searchsorted.Tensor": Rule(search),
}
