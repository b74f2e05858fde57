"""Fourier transforms, linear algebra and distances: a few axes, the others apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dynaflow_dsl.graph.rowwise.convolution import over_last
from dynaflow_dsl.graph.rowwise.matmul import multiply
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    Tensor,
    front_axis,
    moved,
    only_rows,
    plain_integer,
)
from dynaflow_dsl.graph.rowwise.pointwise import align, broadcast
from dynaflow_dsl.graph.rowwise.reductions import along

_TRANSFORMS = "transforms over the split dimension"
# Beyond any position: the argument is a keyword.
_KEYWORD = 99


def over_axes(axes_at: int, default: tuple[int, ...] | None) -> Callable[[Call], Fact]:
    """Make the rule of a transform over several axes.

    `default` are the axes where none are given. None stands for as many of the last
    axes as sizes are given, and for all of them without sizes.
    """

    def apply(call: Call) -> Fact:
        source, rows = call.tensor(), only_rows(call.tensor())
        if rows is None:
            return Shared()
        axes = call.argument(axes_at, "dim", default)
        if axes is None:
            sizes = call.argument(1, "s")
            known = len(sizes) if isinstance(sizes, tuple) else source.rank
            axes = tuple(range(-known, 0))
        given = axes if isinstance(axes, tuple) else (axes,)
        if any(
            front_axis(plain_integer(axis, "dim"), source.rank) == rows.axis
            for axis in given
        ):
            raise RefusedError(_TRANSFORMS)
        return rows

    return apply


def spectrogram(call: Call) -> Fact:
    """Transforms of windows over the last axis, which become the last two."""
    source, rows = call.tensor(), only_rows(call.tensor())
    window = call.optional(4, "window")
    if window is not None and only_rows(window) is not None:
        raise RefusedError("the window of the transform is split")
    if rows is None:
        return Shared()
    if rows.axis == source.rank - 1:
        raise RefusedError(_TRANSFORMS)
    return rows


def exponential(call: Call) -> Fact:
    """The exponential of matrices in the last two axes.

    Torch views all leading axes as one, which fails on a slice with gaps.
    """
    fact, source = over_last(2)(call), call.tensor()
    if isinstance(fact, Rows) and fact.axis > 0 and source.sliced:
        raise RefusedError(
            "merges the split dimension with an axis before it, which a slice of the "
            "whole tensor does not allow"
        )
    return fact


def solve(call: Call) -> Fact:
    """Systems of equations in the last two axes, the same leading axes on both sides.

    With as many axes on both sides, the right one is no single vector.
    """
    left, right = call.tensor(0, "A"), call.tensor(1, "B")
    rows = only_rows(left)
    if rows is None or only_rows(right) != rows or left.rank != right.rank:
        raise RefusedError("matrices and right sides are not split alike")
    if rows.axis >= left.rank - 2 or left.shape[rows.axis] != right.shape[rows.axis]:
        raise RefusedError("solves equations over the split dimension")
    return rows


def distances(call: Call) -> Fact:
    """Distances of each vector of one tensor to each of another.

    The vectors are the last axis. What is paired with what is as in the product of the
    one with the other transposed.
    """
    left, right = call.tensor(0, "x1"), call.tensor(1, "x2")
    for tensor in (left, right):
        rows = only_rows(tensor)
        if rows is not None and rows.axis == tensor.rank - 1:
            raise RefusedError("measures distances over the split dimension")
    return multiply(left, _transposed(right))


def _transposed(tensor: Tensor) -> Tensor:
    """Return a matrix, or a batch of them, with its last two axes exchanged."""
    type_ = tensor.value.type
    *leading, one, other = type_.shape
    turned = replace(type_, shape=(*leading, other, one))
    fact, last = tensor.fact, tensor.rank - 1
    if not isinstance(fact, Shared) and fact.axis >= last - 1:
        fact = moved(fact, 2 * last - 1 - fact.axis)
    return replace(tensor, value=replace(tensor.value, type=turned), fact=fact)


def _pair(call: Call, names: tuple[str, str], default: int) -> tuple[Fact, int]:
    """Return how two tensors broadcast together are split, and the axis in it."""
    tensors = [call.tensor(0, names[0]), call.tensor(1, names[1])]
    shape = broadcast([tensor.shape for tensor in tensors])
    fact = align([(tensor.shape, tensor.fact) for tensor in tensors], shape)
    at = 2 if names[0] == "x1" else _KEYWORD
    return fact, call.axis(len(shape), at, "dim", default)


def similarity(call: Call) -> Fact:
    """The cosine between vectors along one axis, which goes."""
    fact, axis = _pair(call, ("x1", "x2"), 1)
    if isinstance(fact, Shared):
        return fact
    if fact.axis == axis:
        raise RefusedError("compares vectors along the split dimension")
    return Rows(fact.axis - (axis < fact.axis), fact.outer)


def cross_product(call: Call) -> Fact:
    """The cross product of vectors along one axis."""
    fact, axis = _pair(call, ("self", "other"), -1)
    if not isinstance(fact, Shared) and fact.axis == axis:
        raise RefusedError("multiplies vectors along the split dimension")
    return fact


_ONE_AXIS = "fft ifft rfft irfft hfft ihfft"
_TWO_AXES = "fft2 ifft2 rfft2 irfft2"
_ALL_AXES = "fftn ifftn rfftn irfftn"
_MATRICES = """
    linalg_inv linalg_cholesky linalg_qr linalg_svd linalg_eigh linalg_det
    linalg_slogdet linalg_pinv inverse
"""

RULES = {
    **{f"aten.fft_{n}.default": Rule(along(2, default=-1)) for n in _ONE_AXIS.split()},
    **{
        f"aten.fft_{n}.default": Rule(over_axes(2, (-2, -1))) for n in _TWO_AXES.split()
    },
    **{f"aten.fft_{n}.default": Rule(over_axes(2, None)) for n in _ALL_AXES.split()},
    "aten.fft_fftshift.default": Rule(over_axes(1, None)),
    "aten.fft_ifftshift.default": Rule(over_axes(1, None)),
    "aten.stft.default": Rule(spectrogram),
    **{f"aten.{name}.default": Rule(over_last(2)) for name in _MATRICES.split()},
    "aten.linalg_matrix_exp.default": Rule(exponential),
    "aten.matrix_exp.default": Rule(exponential),
    "aten.linalg_solve.default": Rule(solve),
    "aten.linalg_solve_triangular.default": Rule(solve),
    "aten.cdist.default": Rule(distances),
    "aten.cosine_similarity.default": Rule(similarity),
    "aten.linalg_cross.default": Rule(cross_product),
}
