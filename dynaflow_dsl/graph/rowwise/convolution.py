"""Convolutions, pooling and resampling: independent along the leading axes."""

from __future__ import annotations

from collections.abc import Callable

from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rule,
    Shared,
    only_rows,
)


def convolution(call: Call) -> Fact:
    """Each sample is convolved with the same weights."""
    source, rows = call.tensor(0, "input"), only_rows(call.tensor(0, "input"))
    weight, bias = call.tensor(1, "weight"), call.optional(2, "bias")
    for other in (weight, bias):
        if other is not None and only_rows(other) is not None:
            raise RefusedError("a weight of the convolution is split")
    if rows is None:
        return Shared()
    # Without a batch axis the first axis are channels.
    if rows.axis != 0 or source.rank != weight.rank:
        raise RefusedError("convolves over the split dimension")
    return rows


def over_last(axes: int) -> Callable[[Call], Fact]:
    """Make the rule of an operator that moves a window over the last axes."""

    def apply(call: Call) -> Fact:
        source, rows = call.tensor(), only_rows(call.tensor())
        if rows is None:
            return Shared()
        if rows.axis >= source.rank - axes:
            raise RefusedError("pools or resamples over the split dimension")
        return rows

    return apply


_CONVOLUTIONS = """
    conv1d.default conv1d.padding conv2d.default conv2d.padding conv3d.default
    conv3d.padding convolution.default conv_transpose1d.default conv_transpose2d.input
    conv_transpose3d.input
"""
_WINDOWS = {
    1: """avg_pool1d.default max_pool1d.default adaptive_avg_pool1d.default
        upsample_nearest1d.default upsample_nearest1d.vec""",
    2: """avg_pool2d.default max_pool2d.default max_pool2d_with_indices.default
        adaptive_avg_pool2d.default adaptive_max_pool2d.default
        upsample_nearest2d.default upsample_nearest2d.vec upsample_bilinear2d.default
        upsample_bilinear2d.vec upsample_bicubic2d.default upsample_bicubic2d.vec""",
    3: "avg_pool3d.default max_pool3d.default adaptive_avg_pool3d.default",
}

RULES = {
    **{f"aten.{name}": Rule(convolution) for name in _CONVOLUTIONS.split()},
    **{
        f"aten.{name}": Rule(over_last(axes))
        for axes, names in _WINDOWS.items()
        for name in names.split()
    },
}
