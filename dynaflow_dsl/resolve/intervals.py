"""Which sizes a condition holds for, found by cutting boxes of sizes into smaller ones.

A box gives each size a range. Interval arithmetic says of a condition that it holds in
the whole box, nowhere in it, or perhaps somewhere; a box of the last kind is halved. So
the work grows with the number of borders that conditions have, not with the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import TypeAlias

from dynaflow_dsl.resolve.walk import symbols
from dynaflow_dsl.syntax import model as syntax

# Inclusive bounds of sizes, None for no upper one.
Bounds: TypeAlias = Mapping[str, tuple[int, int | None]]
Number: TypeAlias = int | Fraction
Interval: TypeAlias = tuple[Number, Number]
Box: TypeAlias = dict[str, tuple[int, int]]

# No tensor has more rows.
UNBOUNDED = 2**31 - 1
# Boxes looked at before a question is left open.
MOST_BOXES = 50_000
MOST_PERIOD = 100_000


def find_sizes(
    wanted: syntax.Expression | bool,
    refused: Sequence[syntax.Expression | bool],
    bounds: Bounds,
) -> dict[str, int] | bool:
    """Sizes for which `wanted` holds and none of `refused`, the first sizes small.

    False when there are none; True when MOST_BOXES boxes do not tell, so that there may
    be some.
    """
    boxes: list[Box] = [
        {
            name: (low, UNBOUNDED if high is None else high)
            for name, (low, high) in bounds.items()
        }
    ]
    conditions = [wanted, *refused]
    for _ in range(MOST_BOXES):
        if not boxes:
            return False
        box = boxes.pop()
        truths = [holds(each, box) for each in conditions]
        if truths[0] is False or True in truths[1:]:
            continue
        if truths[0] is True and None not in truths[1:]:
            return {name: low for name, (low, _) in box.items()}
        left_open = [
            each
            for each, truth in zip(conditions, truths, strict=True)
            if truth is None
        ]
        comparisons = [
            comparison
            for condition in left_open
            for comparison in _comparisons(condition)
            if holds(comparison, box) is None
        ]
        period = _one_period(box, comparisons)
        # One that became narrower may be decided, and a single point has no halves.
        boxes += [period] if period != box else _halves(box, comparisons)
    return True


def _halves(box: Box, open_: Sequence[syntax.Comparison]) -> Iterator[Box]:
    """The upper and the lower half along the widest range that something depends on.

    The lower half is taken first.
    """
    names = {symbol.name for comparison in open_ for symbol in symbols(comparison)}
    name = max(sorted(names), key=lambda each: box[each][1] - box[each][0])
    low, high = box[name]
    middle = (low + high) // 2
    yield {**box, name: (middle + 1, high)}
    yield {**box, name: (low, middle)}


def _one_period(box: Box, open_: Sequence[syntax.Comparison]) -> Box:
    """A part of the box that stands for all of it, where only remainders are open."""
    period = 1
    for comparison in open_:
        one = _period(comparison.left), _period(comparison.right)
        if one[0] is None or one[1] is None:
            return box
        period = lcm(period, one[0], one[1])
        if period > MOST_PERIOD:
            return box
    return {
        name: (low, min(high, low + period - 1)) for name, (low, high) in box.items()
    }


def _comparisons(condition: syntax.Expression | bool) -> Iterator[syntax.Comparison]:
    match condition:
        case syntax.Comparison():
            yield condition
        case syntax.Not(operand):
            yield from _comparisons(operand)
        case syntax.Logical(_, left, right):
            yield from _comparisons(left)
            yield from _comparisons(right)


def _period(expression: syntax.Expression) -> int | None:
    """A number of which adding any multiple to any size changes nothing; None: none."""
    match expression:
        case syntax.Number():
            return 1
        case syntax.ListOf(items):
            return _common([_period(item) for item in items])
        case syntax.Arithmetic("%", left, syntax.Number(int() as modulus)):
            return abs(modulus) if _is_whole(left) else _period(left)
        case syntax.Arithmetic(_, left, right):
            return _common([_period(left), _period(right)])
    return None


def _common(periods: Sequence[int | None]) -> int | None:
    known = [period for period in periods if period is not None]
    return lcm(*known) if len(known) == len(periods) else None


def _is_whole(expression: syntax.Expression) -> bool:
    """Whether an expression is a sum of products of sizes and whole numbers."""
    match expression:
        case syntax.Number(value):
            return isinstance(value, int)
        case syntax.Symbol():
            return True
        case syntax.Arithmetic("+" | "-" | "*", left, right):
            return _is_whole(left) and _is_whole(right)
    return False


def holds(condition: syntax.Expression | bool, box: Box) -> bool | None:
    """Whether a condition holds in a whole box, or nowhere in it; None: perhaps."""
    match condition:
        case bool():
            return condition
        case syntax.Not(operand):
            inner = holds(operand, box)
            return None if inner is None else not inner
        case syntax.Logical(operator, left, right):
            decides = operator == "or"
            truths = (holds(left, box), holds(right, box))
            if decides in truths:
                return decides
            return None if None in truths else not decides
        case syntax.Comparison(operator, left, right):
            return _compared(operator, left, right, box)
    return None


def _compared(
    operator: str, left: syntax.Expression, right: syntax.Expression, box: Box
) -> bool | None:
    one = interval_of(left, box)
    if isinstance(right, syntax.ListOf):
        truths = [_equal(one, interval_of(item, box)) for item in right.items]
        if True in truths:
            return True
        return None if None in truths else False
    other = interval_of(right, box)
    match operator:
        case "==":
            return _equal(one, other)
        case "!=":
            same = _equal(one, other)
            return None if same is None else not same
        case "<" | "<=":
            return _below(one, other, strict=operator == "<")
    return _below(other, one, strict=operator == ">")


def _equal(one: Interval, other: Interval) -> bool | None:
    if one[1] < other[0] or other[1] < one[0]:
        return False
    return True if one[0] == one[1] == other[0] == other[1] else None


def _below(one: Interval, other: Interval, *, strict: bool) -> bool | None:
    if one[1] < other[0] or (not strict and one[1] == other[0]):
        return True
    if one[0] > other[1] or (strict and one[0] == other[1]):
        return False
    return None


def interval_of(expression: syntax.Expression, bounds: Bounds) -> Interval:
    """The least and the largest value that an expression may have in a box."""
    match expression:
        case syntax.Number(value):
            return value, value
        case syntax.Symbol(name):
            low, high = bounds[name]
            return low, UNBOUNDED if high is None else high
        case syntax.Arithmetic(operator, left, right):
            return _computed(
                operator, interval_of(left, bounds), interval_of(right, bounds)
            )
    raise AssertionError(f"{type(expression).__name__} is no number")


def _computed(operator: str, one: Interval, other: Interval) -> Interval:
    match operator:
        case "+":
            return one[0] + other[0], one[1] + other[1]
        case "-":
            return one[0] - other[1], one[1] - other[0]
        case "%":
            return _remainder(one, other)
    # Both are monotone in each operand, whose divisor has one sign.
    corners: list[Number] = [
        left * right if operator == "*" else left // right
        for left in one
        for right in other
    ]
    return min(corners), max(corners)


def _remainder(one: Interval, other: Interval) -> Interval:
    if other[0] == other[1]:
        divisor = other[0]
        if one[0] // divisor == one[1] // divisor:
            return one[0] % divisor, one[1] % divisor
    return (0, other[1]) if other[0] > 0 else (other[0], 0)
