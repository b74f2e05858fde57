"""How far two tensors are apart, beside what rounding may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median_high

import torch

# How far results may be apart when the same numbers are added in another order,
# relative to the magnitude of the tensor; other dtypes must be equal.
TOLERANCES: Mapping[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}

# How many roundings of values of the usual magnitude a tensor may hold that is the sum
# of such values and near zero.
_ROUNDINGS = 16

# What that may do to the tolerance is bounded: half precision has coarse roundings.
_LARGEST_SHARE = 1 / 16


@dataclass(frozen=True, slots=True)
class Distance:
    """The largest difference of two tensors, by itself and over their magnitude."""

    absolute: float
    relative: float

    def __str__(self) -> str:
        return f"{self.absolute:.1e}, relative {self.relative:.1e}"


INFINITE = Distance(float("inf"), float("inf"))


def usual_magnitude(tensors: Iterable[torch.Tensor]) -> float:
    """The median, over floating tensors, of their largest finite magnitude.

    One with large numbers, such as a time in milliseconds, does not move it. Zeros say
    nothing, nor do masks that are added, whose numbers stand for minus infinity: a
    tensor without a value above zero is left out. Without any other it is 0.
    """
    found: list[float] = []
    for tensor in tensors:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        values = tensor.detach().double()
        values = torch.where(torch.isfinite(values), values, 0.0)
        low, high = (one.item() for one in values.aminmax())
        if high > 0.0:
            found.append(max(high, -low))
    return median_high(found) if found else 0.0


def distance(one: torch.Tensor, other: torch.Tensor, around: float = 0.0) -> Distance:
    """The largest difference, and relative to the largest magnitude of `other`.

    `around` is the usual magnitude of what a step holds. Where values of that size
    cancel, what is left is their rounding, which no two orders of addition share: the
    magnitude of `other` counts as no less than a share of `around`, with which 16
    roundings (the dtype's epsilon) of `around` are within the tolerance; at most 1/16.
    NaNs must coincide.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return INFINITE
    if one.numel() == 0:
        return Distance(0.0, 0.0)
    if not other.dtype.is_floating_point:
        return Distance(0.0, 0.0) if torch.equal(one, other) else INFINITE
    left, right = one.detach().double(), other.detach().double()
    finite = torch.isfinite(right)
    if not torch.equal(finite, torch.isfinite(left)) or not torch.equal(
        left[~finite].nan_to_num(), right[~finite].nan_to_num()
    ):
        return INFINITE
    if not bool(finite.any()):
        return Distance(0.0, 0.0)
    apart = (left[finite] - right[finite]).abs().max().item()
    scale = max(right[finite].abs().max().item(), around * _share(other.dtype))
    return Distance(apart, apart if scale == 0.0 else apart / scale)


def _share(dtype: torch.dtype) -> float:
    """The least magnitude of a tensor, as a share of the usual one around it."""
    tolerance = TOLERANCES.get(dtype)
    if tolerance is None:
        return 0.0
    return min(_ROUNDINGS * torch.finfo(dtype).eps / tolerance, _LARGEST_SHARE)
