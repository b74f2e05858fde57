"""What is rounding, and what is a difference."""

from __future__ import annotations

import pytest
import torch

from dynaflow_dsl.runtime.distances import (
    TOLERANCES,
    Distance,
    distance,
    usual_magnitude,
)

DTYPES = list(TOLERANCES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_of_what_cancels_is_no_difference(dtype: torch.dtype) -> None:
    usual = 4.0
    rounding = TOLERANCES[dtype] / 16 * usual
    rounding = min(rounding, 16 * torch.finfo(dtype).eps * usual) * 0.9
    expected = torch.full((3,), rounding, dtype=dtype)
    given = torch.zeros(3, dtype=dtype)
    assert distance(given, expected).relative == 1.0
    assert distance(given, expected, usual).relative <= TOLERANCES[dtype]
    assert distance(given - 2 * expected, expected, usual).relative > TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0.125, 1.0, 1024.0])
def test_the_same_relative_difference_of_usual_numbers_is_one(
    dtype: torch.dtype, size: float
) -> None:
    expected = torch.full((3,), size, dtype=dtype)
    for factor in (1 - 1.5, 1 + 2 * TOLERANCES[dtype]):
        found = distance(expected * factor, expected, 1.0)
        assert found.relative > TOLERANCES[dtype]
        assert found.absolute == pytest.approx(found.relative * size)


def test_a_difference_is_said_both_ways() -> None:
    assert str(Distance(0.25, 1.4)) == "2.5e-01, relative 1.4e+00"


def test_the_usual_magnitude_is_that_of_most_tensors() -> None:
    usual = [torch.tensor([-4.0, 1.0]), torch.tensor([3.0]), torch.tensor([2.0])]
    assert usual_magnitude(usual) == 3.0
    others = [
        torch.tensor([0.0, torch.finfo(torch.float32).min]),
        torch.tensor([0.0, float("-inf")]),
        torch.tensor([1000000]),
        torch.zeros(3),
        torch.empty(0),
    ]
    assert usual_magnitude([*usual, *others]) == 3.0
    assert usual_magnitude([*usual, torch.tensor([1e6]), torch.tensor([1e-7])]) == 3.0
    assert usual_magnitude([torch.tensor([float("nan"), 2.0])]) == 2.0
    assert usual_magnitude(others) == 0.0
