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


def of_images(rank: int) -> Callable[[Call], Fact]:
    """Make the rule of an operator on tensors whose first axis are samples.

    With one axis fewer there are no samples, and rows would be channels.
    """

    def apply(call: Call) -> Fact:
        source, rows = call.tensor(), only_rows(call.tensor())
        if rows is None:
            return Shared()
        if rows.axis != 0 or source.rank != rank:
            raise RefusedError("takes windows over the split dimension")
        return rows

    return apply


def antialiased(call: Call) -> Fact:
    """Resample the last two axes with windows as wide as the scale demands.

    Scales that do not lead from the one size to the other let torch read beyond the
    tensor, in the next row, with weight 0: what is not finite there would show.
    """
    source, sizes = call.tensor(), call.sizes(1, "output_size")
    for axis, place, name in ((-2, 3, "scales_h"), (-1, 4, "scales_w")):
        scale = call.argument(place, name)
        before, after = source.shape[axis], sizes[axis]
        if scale is None:
            continue
        if (
            not isinstance(scale, (int, float))
            or before.dimensions
            or after.dimensions
            or int(before.factor * scale) != after.factor
        ):
            raise RefusedError("resamples by scales that do not fit the sizes")
    return over_last(2)(call)


def grid_sample(call: Call) -> Fact:
    """Each sample is read at the places of its own grid."""
    source, grid = only_rows(call.tensor(0, "input")), only_rows(call.tensor(1, "grid"))
    if source != grid or source is None or source.axis != 0:
        raise RefusedError("samples and their grids are not split alike")
    return source


_CONVOLUTIONS = """
    conv1d.default conv1d.padding conv2d.default conv2d.padding conv3d.default
    conv3d.padding convolution.default conv_transpose1d.default conv_transpose2d.input
    conv_transpose3d.input
"""
_WINDOWS = {
    1: """avg_pool1d.default max_pool1d.default adaptive_avg_pool1d.default
        upsample_nearest1d.default upsample_nearest1d.vec
        _upsample_nearest_exact1d.default _upsample_nearest_exact1d.vec
        upsample_linear1d.default upsample_linear1d.vec adaptive_max_pool1d.default
        max_pool1d_with_indices.default""",
    2: """avg_pool2d.default max_pool2d.default max_pool2d_with_indices.default
        adaptive_avg_pool2d.default adaptive_max_pool2d.default
        upsample_nearest2d.default upsample_nearest2d.vec upsample_bilinear2d.default
        upsample_bilinear2d.vec upsample_bicubic2d.default upsample_bicubic2d.vec
        _upsample_nearest_exact2d.default _upsample_nearest_exact2d.vec
        _upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec""",
    3: """avg_pool3d.default max_pool3d.default adaptive_avg_pool3d.default
        adaptive_max_pool3d.default max_pool3d_with_indices.default
        upsample_nearest3d.default upsample_nearest3d.vec
        upsample_trilinear3d.default upsample_trilinear3d.vec""",
}

RULES = {
    **{f"aten.{name}": Rule(convolution) for name in _CONVOLUTIONS.split()},
    **{
        f"aten.{name}": Rule(over_last(axes))
        for axes, names in _WINDOWS.items()
        for name in names.split()
    },
    "aten._upsample_bilinear2d_aa.default": Rule(antialiased),
    "aten._upsample_bicubic2d_aa.default": Rule(antialiased),
    "aten.im2col.default": Rule(of_images(4)),
    "aten.col2im.default": Rule(of_images(3)),
    "aten.grid_sampler.default": Rule(grid_sample),
}
