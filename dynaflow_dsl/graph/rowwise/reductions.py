"""Operators that work along given axes: reductions, softmax, scans, sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dynaflow_dsl.graph.model import Argument
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    only_rows,
)

_NO_AXES = -1


def _operator(call: Call) -> str:
    """Return the operator's name as in `torch.softmax`."""
    return call.operation.operator.split(".")[1].lstrip("_")


def reduction(
    axes_at: int, keep_at: int | None, *, default: Argument = None
) -> Callable[[Call], Fact]:
    """Make the rule of a reduction.

    `axes_at` and `keep_at` are the positions of `dim` and `keepdim`; `_NO_AXES` reduces
    everything, a `keep_at` of None never keeps the axes.
    """

    def apply(call: Call) -> Fact:
        source, rows = call.tensor(), only_rows(call.tensor())
        if rows is None:
            return Shared()
        axes: tuple[int, ...] = ()
        if axes_at != _NO_AXES and call.argument(axes_at, "dim", default) is not None:
            given = call.argument(axes_at, "dim", default)
            if isinstance(given, tuple):
                axes = call.axes(source.rank, axes_at, "dim")
            else:
                axes = (call.axis(source.rank, axes_at, "dim", -1),)
        if not axes:
            raise RefusedError(
                f"{_operator(call)} over all axes, the split dimension among them"
            )
        if rows.axis in axes:
            raise RefusedError(f"{_operator(call)} over the split dimension")
        kept = keep_at is not None and call.argument(keep_at, "keepdim", False) is True
        if kept:
            return rows
        return Rows(rows.axis - sum(a < rows.axis for a in set(axes)), rows.outer)

    return apply


def along(axes_at: int, *, default: int | None = None) -> Callable[[Call], Fact]:
    """Make the rule of an operator that works along one axis and keeps its place."""

    def apply(call: Call) -> Fact:
        source, rows = call.tensor(), only_rows(call.tensor())
        if rows is None:
            return Shared()
        given = call.argument(axes_at, "dim", default)
        if given is None:
            raise RefusedError(f"{_operator(call)} along an axis that is not given")
        if call.axis(source.rank, axes_at, "dim", default or 0) == rows.axis:
            raise RefusedError(f"{_operator(call)} over the split dimension")
        return rows

    return apply


def diff(call: Call) -> Fact:
    """Differences of neighbours along one axis, values put before or after included."""
    source, rows = call.tensor(), along(2, default=-1)(call)
    axis = call.axis(source.rank, 2, "dim", -1)
    more = (call.optional(3, "prepend"), call.optional(4, "append"))
    for tensor in more:
        if tensor is None:
            continue
        # They are joined to the tensor along the axis, so their rows are its rows.
        if only_rows(tensor) != (None if isinstance(rows, Shared) else rows):
            raise RefusedError("joins tensors that are not all split alike")
        if isinstance(rows, Rows) and (
            tensor.rank != source.rank
            or rows.axis == axis
            or tensor.shape[rows.axis] != source.shape[rows.axis]
        ):
            raise RefusedError("joins tensors with different numbers of rows")
    return rows


def _named(names: str, rule: Callable[[Call], Fact]) -> Iterable[tuple[str, Rule]]:
    return ((f"aten.{name}", Rule(rule)) for name in names.split())


RULES = dict(
    [
        *_named(
            """sum.default mean.default nansum.default amax.default amin.default
            any.dims all.dims nanmean.default""",
            reduction(1, 2),
        ),
        *_named(
            """sum.dim_IntList mean.dim any.dim all.dim prod.dim_int logsumexp.default
            max.dim min.dim median.dim argmax.default argmin.default""",
            reduction(1, 2),
        ),
        *_named("var.dim std.dim var_mean.dim std_mean.dim", reduction(1, 3)),
        # keepdim is a keyword there; no position is as far out.
        *_named(
            "var.correction std.correction var_mean.correction std_mean.correction",
            reduction(1, 99),
        ),
        *_named(
            """linalg_norm.default linalg_vector_norm.default norm.ScalarOpt_dim
            norm.ScalarOpt_dim_dtype""",
            reduction(2, 3),
        ),
        *_named("mode.default", reduction(1, 2, default=-1)),
        *_named("kthvalue.default", reduction(2, 3, default=-1)),
        *_named("count_nonzero.default count_nonzero.dim_IntList", reduction(1, None)),
        *_named(
            """any.default all.default prod.default max.default min.default
            var.default std.default median.default norm.Scalar
            norm.ScalarOpt_dtype""",
            reduction(_NO_AXES, None),
        ),
        *_named(
            """softmax.int log_softmax.int _softmax.default _log_softmax.default
            special_softmax.default special_log_softmax.default cumsum.default
            cumprod.default logcumsumexp.default cummax.default cummin.default""",
            along(1),
        ),
        *_named("sort.default argsort.default glu.default", along(1, default=-1)),
        *_named("topk.default", along(2, default=-1)),
        # `stable` is a keyword, so `dim` is one as well.
        *_named("sort.stable argsort.stable", along(99, default=-1)),
        *_named("diff.default", diff),
    ]
)
