from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.resolve.model import Split
from dynaflow_dsl.resolve.split import MAX_PIECES, smallest
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse


def split(statement: str) -> Split:
    text = f"""dfs 1
schedule s:
    split {statement}
    each layer in .l.*:
        part all = rest
        order:
            all
"""
    schedule = resolve(parse(Source("a.dfs", text)).unwrap()).unwrap().schedules[0]
    assert schedule.split is not None
    assert schedule.pieces == len(schedule.split.weights)
    return schedule.split


def test_equal_pieces() -> None:
    found = split("batch into 1 + 2 as mb (align = 4 * 2)")
    assert (found.dimension, found.index, found.align) == ("batch", "mb", 8)
    assert found.weights == (1, 1, 1)
    assert found.span.text == "split batch into 1 + 2 as mb (align = 4 * 2)"


def test_weights_are_exact() -> None:
    found = split("batch into [0.4, 0.3, 0.3] as mb")
    assert found.weights == (4, 3, 3)
    assert found.align == 1


def test_the_most_pieces() -> None:
    assert len(split(f"batch into {MAX_PIECES} as mb").weights) == MAX_PIECES


@given(st.lists(st.fractions(min_value=Fraction(1, 1000)), min_size=1, max_size=9))
def test_smallest_weights_keep_the_proportions(weights: list[Fraction]) -> None:
    found = smallest(weights)
    assert all(number.denominator == 1 and number >= 1 for number in found)
    ratios = {number / weight for number, weight in zip(found, weights, strict=True)}
    assert len(ratios) == 1
    assert smallest(found) == found


@given(
    st.lists(
        st.decimals("0.001", "999", places=3).filter(lambda d: d > 0),
        min_size=2,
        max_size=6,
    )
)
def test_written_weights(weights: list[object]) -> None:
    found = split(f"batch into [{', '.join(map(str, weights))}] as mb").weights
    exact = [Fraction(str(weight)) for weight in weights]
    assert [number / sum(found) for number in found] == [
        weight / sum(exact) for weight in exact
    ]
