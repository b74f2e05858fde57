"""The `split` statement: how many pieces, and how large."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, count, pairwise
from math import gcd, lcm

from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import given_twice
from dynaflow_dsl.resolve.model import Atom, Value
from dynaflow_dsl.resolve.values import (
    Scope,
    evaluate,
    evaluate_whole,
    options_by_name,
    written,
    wrong_value,
)
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

MAX_PIECES = 64


def resolve_split(
    split: syntax.Split, scope: Scope, found: list[Diagnostic]
) -> model.Split | None:
    """The pieces of a split, or None after saying what is wrong with them.

    A list of names that stand for nothing are phases; which ones there are, the model
    says.
    """
    phases: tuple[syntax.Name, ...] | None = ()
    weights: tuple[Fraction, ...] | None = ()
    if isinstance(split.into, syntax.ListOf) and all(
        isinstance(item, syntax.Symbol) and item.name not in scope
        for item in split.into.items
    ):
        phases = _phases(split.into, found)
    else:
        weights = _weights(split.into, scope, found)
    align = 1
    options = options_by_name(split.options, "split", ["align"], found)
    if "align" in options:
        align = _align(options["align"].value, scope, found)
        if phases != ():
            found.append(_nothing_to_align(options["align"].span))
    if weights is None or phases is None:
        return None
    return model.Split(
        split.dimension.text, weights, split.index.text, align, split.span, phases
    )


def _phases(
    into: syntax.ListOf, found: list[Diagnostic]
) -> tuple[syntax.Name, ...] | None:
    """The phases that pieces are named after, each once."""
    first: dict[str, Span] = {}
    again = False
    for item in into.items:
        assert isinstance(item, syntax.Symbol)
        if item.name in first:
            what = f"phase '{item.name}'"
            found.append(given_twice(what, item.span, first[item.name]))
            again = True
        first.setdefault(item.name, item.span)
    if again:
        return None
    if not 2 <= len(first) <= MAX_PIECES:
        found.append(
            Diagnostic(
                "DFS311",
                f"a split makes 2 to {MAX_PIECES} pieces",
                Label(into.span, f"this has {len(first)}"),
            )
        )
        return None
    return tuple(syntax.Name(name, span) for name, span in first.items())


def _align(expression: syntax.Expression, scope: Scope, found: list[Diagnostic]) -> int:
    value = evaluate_whole(expression, found, scope)
    if value is None:
        return 1
    if value < 1:
        found.append(
            _unfit("pieces are aligned to one row or more", value, expression.span)
        )
        return 1
    return value


def _weights(
    into: syntax.Expression, scope: Scope, found: list[Diagnostic]
) -> tuple[Fraction, ...] | None:
    match evaluate(into, found, scope):
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
        found.append(_unfit(f"a split makes 2 to {MAX_PIECES} pieces", count, span))
        return None
    return (Fraction(1),) * count


def _by_weight(
    into: syntax.Expression, weights: Sequence[Atom], found: list[Diagnostic]
) -> tuple[Fraction, ...] | None:
    # Weights that a parameter holds have no place of their own here.
    spans = [into.span] * len(weights)
    if isinstance(into, syntax.ListOf):
        spans = [item.span for item in into.items]
    exact: list[Fraction] = []
    for span, weight in zip(spans, weights, strict=True):
        if isinstance(weight, bool) or not isinstance(weight, int | Fraction):
            found.append(wrong_value("a number", weight, span))
        elif weight <= 0:
            found.append(_unfit("a weight is greater than zero", weight, span))
        else:
            exact.append(Fraction(weight))
    if len(exact) < len(weights):
        return None
    if not 2 <= len(exact) <= MAX_PIECES:
        found.append(
            _unfit(f"a split makes 2 to {MAX_PIECES} pieces", tuple(weights), into.span)
        )
        return None
    return smallest(exact)


def smallest(weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The same proportions as whole numbers, as small as they can be."""
    scale = lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * scale) for weight in weights]
    divisor = gcd(*whole)
    return tuple(Fraction(number // divisor) for number in whole)


def _nothing_to_align(span: Span) -> Diagnostic:
    return Diagnostic(
        "DFS311",
        "'align' has no effect on a split by phase",
        Label(span, "each step says where its phases end"),
        helps=("remove it",),
    )


def least_rows(split: model.Split) -> int:
    """The fewest rows that leave a row for each piece."""
    if split.phases:
        return len(split.phases)
    whole = sum(split.weights)
    shares = list(accumulate(split.weights))[:-1]
    for total in count(len(split.weights)):
        cuts = [0]
        for share in shares:
            steps = (2 * total * share + whole * split.align) // (
                2 * whole * split.align
            )
            cuts.append(min(split.align * int(steps), total))
        if all(start < stop for start, stop in pairwise([*cuts, total])):
            return total
    raise AssertionError(split)


def never_cut(
    split: model.Split, place: Span, said: str, others: tuple[Label, ...] = ()
) -> Diagnostic:
    """DFS322: a split whose pieces no step can fill."""
    least = least_rows(split)
    helps = [f"leave the split out, or run it for steps of {least} rows and more"]
    if split.weights and len(split.weights) > 2:
        helps.append("cut into fewer pieces")
    if len(set(split.weights)) > 1:
        helps.append("take weights that are closer together")
    if split.align > 1:
        helps.append("align the pieces to fewer rows")
    return Diagnostic(
        "DFS322",
        f"no step fills the {len(split.pieces)} pieces of this split, so all run "
        "'sequential'",
        Label(place, said),
        others,
        notes=(f"it takes at least {least} rows of {split.dimension}",),
        helps=tuple(helps),
        severity=Severity.WARNING,
    )


def _unfit(message: str, value: Value, span: Span) -> Diagnostic:
    text = f"this is {written(value)}"
    if isinstance(value, tuple):
        text = f"this has {len(value)}"
    return Diagnostic("DFS311", message, Label(span, text))
