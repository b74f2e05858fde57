"""The `split` statement: how many pieces, and how large."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import not_yet
from dynaflow_dsl.resolve.values import Value, evaluate, options_by_name, wrong_value
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

MAX_PIECES = 64


def resolve_split(
    split: syntax.Split, parameters: Sequence[str], found: list[Diagnostic]
) -> model.Split | None:
    """The pieces of a split, or None after saying what is wrong with them."""
    weights = _weights(split.into, parameters, found)
    align = 1
    options = options_by_name(split.options, "split", ["align"], [], found)
    if "align" in options:
        value = options["align"].value
        align = _align(value, evaluate(value, found, parameters), found)
    if weights is None:
        return None
    return model.Split(
        split.dimension.text, weights, split.index.text, align, split.span
    )


def _align(
    expression: syntax.Expression, value: Value | None, found: list[Diagnostic]
) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int):
        found.append(wrong_value("a whole number", value, expression.span))
        return 1
    if value < 1:
        found.append(_unfit("pieces are aligned to one row or more", expression.span))
        return 1
    return value


def _weights(
    into: syntax.Expression, parameters: Sequence[str], found: list[Diagnostic]
) -> tuple[Fraction, ...] | None:
    if isinstance(into, syntax.ListOf) and all(
        isinstance(item, syntax.Symbol) and item.name not in parameters
        for item in into.items
    ):
        found.append(not_yet("a split by phase", into.span))
        return None
    match evaluate(into, found, parameters):
        case None:
            return None
        case tuple() as weights:
            return _by_weight(into, weights, found)
        case int() as count if not isinstance(count, bool):
            return _equal_pieces(count, into.span, found)
        case other:
            wanted = "a number of pieces or a list of weights"
            found.append(wrong_value(wanted, other, into.span))
            return None


def _equal_pieces(
    count: int, span: Span, found: list[Diagnostic]
) -> tuple[Fraction, ...] | None:
    if not 2 <= count <= MAX_PIECES:
        found.append(_unfit(f"a split makes 2 to {MAX_PIECES} pieces", span))
        return None
    return (Fraction(1),) * count


def _by_weight(
    into: syntax.Expression, weights: Sequence[Value], found: list[Diagnostic]
) -> tuple[Fraction, ...] | None:
    items = into.items if isinstance(into, syntax.ListOf) else ()
    exact: list[Fraction] = []
    for item, weight in zip(items, weights, strict=True):
        if isinstance(weight, bool) or not isinstance(weight, int | Fraction):
            found.append(wrong_value("a number", weight, item.span))
        elif weight <= 0:
            found.append(_unfit("a weight is greater than zero", item.span))
        else:
            exact.append(Fraction(weight))
    if len(exact) < len(weights):
        return None
    if not 2 <= len(exact) <= MAX_PIECES:
        found.append(_unfit(f"a split makes 2 to {MAX_PIECES} pieces", into.span))
        return None
    return smallest(exact)


def smallest(weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The same proportions as whole numbers, as small as they can be."""
    scale = lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * scale) for weight in weights]
    divisor = gcd(*whole)
    return tuple(Fraction(number // divisor) for number in whole)


def _unfit(message: str, span: Span) -> Diagnostic:
    return Diagnostic("DFS311", message, Label(span, "not this"))
