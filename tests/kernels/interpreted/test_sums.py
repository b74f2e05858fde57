"""What is fused on a GPU gives what single operations give."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from dynaflow_dsl.kernels import sums

SHAPES = [(1, 1), (5, 3, 24), (7, 64), (2, 5000)]
DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_fused_sums(shape: tuple[int, ...], dtype: torch.dtype, count: int) -> None:
    residual = torch.randn(shape).to(dtype)
    weight = torch.randn(shape[-1]).to(dtype)
    addends = [torch.randn(residual.numel()).to(dtype) for _ in range(count)]
    # The interpreter cuts what a GPU rounds to bfloat16.
    near = {"atol": 0.05, "rtol": 0.02} if dtype == torch.bfloat16 else {}
    expected = residual + sums.total(addends).view(shape)
    assert_close(sums.add_residual(addends, residual), expected, **near)
    made = sums.add_residual_and_norm(addends, residual, weight, 1e-5)
    for one, other in zip(made, sums.norm(expected, weight, 1e-5), strict=True):
        assert_close(one, other, **near)


def test_a_residual_with_gaps() -> None:
    residual = torch.randn(6, 8)[:, :5].t()
    addends = [torch.randn(30)]
    made = sums.add_residual(addends, residual)
    assert made.is_contiguous()
    assert_close(made, residual + addends[0].view(5, 6))
