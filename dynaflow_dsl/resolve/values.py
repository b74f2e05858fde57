"""Expressions to values: literals, lists and exact arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve.findings import given_twice, not_yet, unknown_name
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

Number: TypeAlias = int | Fraction
Atom: TypeAlias = bool | int | Fraction | str
Value: TypeAlias = Atom | tuple["Value", ...]

LIMIT = 10**18

_OPERATORS: Mapping[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def evaluate(
    expression: syntax.Expression,
    found: list[Diagnostic],
    parameters: Sequence[str] = (),
) -> Value | None:
    """The value of an expression, or None after putting the reason into `found`.

    `parameters` are names whose declaration was refused already: no second error.
    """
    match expression:
        case syntax.Number(value) | syntax.String(value) | syntax.Boolean(value):
            return value
        case syntax.Symbol(name, span):
            if name not in parameters:
                found.append(unknown_name("value", name, span, ()))
            return None
        case syntax.ListOf(items):
            values = [evaluate(item, found, parameters) for item in items]
            known = tuple(value for value in values if value is not None)
            return known if len(known) == len(values) else None
        case syntax.Arithmetic():
            return _arithmetic(expression, found, parameters)
        case syntax.Not() | syntax.Logical() | syntax.Comparison():
            found.append(not_yet("a condition", expression.span))
            return None


def _arithmetic(
    expression: syntax.Arithmetic, found: list[Diagnostic], parameters: Sequence[str]
) -> Number | None:
    operands = []
    for side in (expression.left, expression.right):
        value = evaluate(side, found, parameters)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            found.append(wrong_value("a number", value, side.span))
            return None
        operands.append(value)
    left, right = operands
    if right == 0 and expression.operator in ("//", "%"):
        found.append(
            Diagnostic(
                "DFS108", "division by zero", Label(expression.right.span, "this is 0")
            )
        )
        return None
    result = _OPERATORS[expression.operator](left, right)
    if not -LIMIT < result < LIMIT:
        found.append(
            Diagnostic(
                "DFS007",
                "this number is too large",
                Label(expression.span, "more than 18 digits"),
            )
        )
        return None
    return result


def wrong_value(wanted: str, value: Value, span: Span) -> Diagnostic:
    """For a value of another kind than its place takes."""
    return Diagnostic(
        "DFS108", f"this must be {wanted}", Label(span, f"this is {kind_of(value)}")
    )


def kind_of(value: Value) -> str:
    """What a value is, in words."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value}"
        case Fraction():
            return "a decimal"
        case str():
            return "a text"
        case _:
            return "a list"


def options_by_name(
    arguments: Sequence[syntax.Argument],
    statement: str,
    known: Sequence[str],
    unsupported: Sequence[str],
    found: list[Diagnostic],
) -> dict[str, syntax.Argument]:
    """The options of a statement that this release takes, each at most once.

    `unsupported` are options of the language that this release does not have.
    """
    taken: dict[str, syntax.Argument] = {}
    for argument in arguments:
        name = argument.name.text
        if name in taken:
            found.append(
                given_twice(
                    f"option '{name}'", argument.name.span, taken[name].name.span
                )
            )
        elif name in unsupported:
            what = f"option '{name}' of '{statement}'"
            found.append(not_yet(what, argument.span))
        elif name not in known:
            kind = f"option of '{statement}' called"
            choices = (*known, *unsupported)
            found.append(unknown_name(kind, name, argument.name.span, choices))
        else:
            taken[name] = argument
    return taken
