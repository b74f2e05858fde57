"""Unions of intervals, and what is left of one."""

from __future__ import annotations

import pytest

from dynaflow_dsl.measurement.intervals import Interval, common, length, union, without


def test_a_union_is_in_order_and_without_overlap() -> None:
    found = list(union([(6, 8), (0, 2), (1, 3), (3, 4), (7, 7)]))
    assert found == [(0, 4), (6, 8)]
    assert length(found) == 6
    assert list(union([])) == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([(0, 10)], [(2, 3), (5, 20)], 6),
        ([(0, 2), (4, 6)], [(1, 5)], 2),
        ([(0, 1)], [(1, 2)], 0),
        ([], [(1, 2)], 0),
        ([(0, 3), (3.5, 9)], [(0, 1), (2, 4), (8, 12)], 3.5),
    ],
)
def test_what_two_unions_share(
    one: list[Interval], other: list[Interval], expected: float
) -> None:
    assert common(one, other) == common(other, one) == expected


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], [(0, 10)]),
        ([(-5, 0), (10, 12)], [(0, 10)]),
        ([(-1, 2), (4, 5)], [(2, 4), (5, 10)]),
        ([(3, 20)], [(0, 3)]),
        ([(-1, 20)], []),
    ],
)
def test_what_others_leave_of_an_interval(
    others: list[Interval], expected: list[Interval]
) -> None:
    assert list(without((0, 10), others)) == expected
