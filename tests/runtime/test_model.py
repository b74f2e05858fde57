from __future__ import annotations

from fractions import Fraction
from math import floor

import pytest

from dynaflow_dsl.runtime import Part, Split, TensorSpec


def cuts(split: Split, total: int) -> list[int]:
    return [piece.stop for piece in split.slices(total)]


@pytest.mark.parametrize(
    ("weights", "align", "total", "expected"),
    [
        ((1, 1), 1, 8, [4, 8]),
        ((1, 1), 1, 7, [4, 7]),  # halves round up
        ((1, 1), 1, 1, [1, 1]),
        ((1, 1, 1), 1, 8, [3, 5, 8]),
        ((2, 1), 1, 9, [6, 9]),
        (("0.1", "0.2"), 1, 30, [10, 30]),
        ((Fraction(1, 3), Fraction(2, 3)), 1, 3, [1, 3]),
        ((1, 1), 4, 10, [4, 10]),
        ((1, 1), 4, 3, [0, 3]),
        ((3, 1), 4, 3, [3, 3]),  # never beyond the whole
    ],
)
def test_cuts(
    weights: tuple[int | str | Fraction, ...],
    align: int,
    total: int,
    expected: list[int],
) -> None:
    assert cuts(Split("batch", weights=weights, align=align), total) == expected


def test_cuts_follow_the_formula_in_integers() -> None:
    for align in (1, 3, 8):
        for weights in ((1, 1), (5, 3), (1, 2, 4)):
            for total in range(1, 60):
                whole, expected = sum(weights), []
                for k in range(1, len(weights)):
                    upper = 2 * total * sum(weights[:k]) + whole * align
                    cut = align * floor(Fraction(upper, 2 * whole * align))
                    expected.append(min(cut, total))
                split = Split("batch", weights=weights, align=align)
                assert cuts(split, total) == [*expected, total]


def test_decimal_weights_are_exact() -> None:
    # In binary floating point 0.1 + 0.2 is not 0.3, and the cut would move.
    split = Split("batch", weights=("0.3", "0.3", "0.4"))
    assert cuts(split, 10**16) == [3 * 10**15, 6 * 10**15, 10**16]


def test_a_piece_without_rows_does_not_fill() -> None:
    split = Split("batch", weights=(1, 1))
    assert not split.fills(1)
    assert split.fills(2)


def test_tensor_spec_reads_like_a_type() -> None:
    spec = TensorSpec("float32", "batch", 2, "4 * batch")
    assert str(spec) == "float32[batch, 2, 4 * batch]"
    assert spec == TensorSpec("float32", "batch", 2, "4 * batch")


def test_paths_take_the_number_of_the_layer_not_the_iteration() -> None:
    part = Part(print, layers=(1, 3), weights={"q": "layers.{}.q", "one": ("a", "b")})
    assert part.paths(1) == {"q": "layers.3.q", "one": "b"}


def test_a_weight_that_an_iteration_lacks_is_left_out() -> None:
    part = Part([print, repr], range(2), {"gate": (None, "g")}, which=(0, 1))
    assert part.paths(0) == {}
    assert part.paths(1) == {"gate": "g"}
    assert [part.function(k) for k in range(2)] == [print, repr]
