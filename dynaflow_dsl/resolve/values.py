"""Expressions to values: literals, lists, exact arithmetic and conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve.findings import given_twice, unknown_name
from dynaflow_dsl.resolve.model import Atom, Number, Value
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

# What names stand for. None is a name whose declaration is wrong: whatever reads it has
# no value and is no second error.
Scope: TypeAlias = Mapping[str, Value | None]

LIMIT = 10**18

_OPERATORS: Mapping[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_ORDERS: Mapping[str, Callable[[Number, Number], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def evaluate(
    expression: syntax.Expression, found: list[Diagnostic], scope: Scope
) -> Value | None:
    """The value of an expression, or None after putting the reason into `found`."""
    match expression:
        case syntax.Number(value) | syntax.String(value) | syntax.Boolean(value):
            return value
        case syntax.Symbol(name, span):
            if name not in scope:
                written_otherwise = name.lower() in ("true", "false")
                choices = [name.lower()] if written_otherwise else scope
                declare = (
                    f"'{name} = ...' in the parentheses behind the name of this "
                    "'schedule' or 'select'"
                )
                found.append(unknown_name("value", name, span, choices, declare))
            return scope.get(name)
        case syntax.ListOf(items):
            values = [_item(item, found, scope) for item in items]
            known = tuple(value for value in values if value is not None)
            return known if len(known) == len(values) else None
        case syntax.Arithmetic():
            return _arithmetic(expression, found, scope)
        case syntax.Not(operand):
            truth = evaluate_condition(operand, found, scope)
            return None if truth is None else not truth
        case syntax.Logical():
            return _logical(expression, found, scope)
        case syntax.Comparison():
            return _comparison(expression, found, scope)


def _item(
    expression: syntax.Expression, found: list[Diagnostic], scope: Scope
) -> Atom | None:
    """An item of a list. No statement takes lists of lists, and parameters that hold
    lists of each other would grow without bound."""
    value = evaluate(expression, found, scope)
    if isinstance(value, tuple):
        wanted = "a number, a text, true or false"
        found.append(wrong_value(wanted, value, expression.span))
        return None
    return value


def evaluate_condition(
    expression: syntax.Expression, found: list[Diagnostic], scope: Scope
) -> bool | None:
    """The truth of a condition, or None after putting the reason into `found`."""
    value = evaluate(expression, found, scope)
    if value is None or isinstance(value, bool):
        return value
    found.append(wrong_value("a condition", value, expression.span))
    return None


def evaluate_whole(
    expression: syntax.Expression, found: list[Diagnostic], scope: Scope
) -> int | None:
    """A whole number, or None after putting the reason into `found`."""
    value = evaluate(expression, found, scope)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    found.append(wrong_value("a whole number", value, expression.span))
    return None


def _logical(
    expression: syntax.Logical, found: list[Diagnostic], scope: Scope
) -> bool | None:
    left = evaluate_condition(expression.left, found, scope)
    decides = expression.operator == "or"
    if left is None or left is decides:
        # The right side may only make sense when the left one lets it through, as in
        # `ways > 0 and 8 % ways == 0`.
        return left
    return evaluate_condition(expression.right, found, scope)


def _comparison(
    expression: syntax.Comparison, found: list[Diagnostic], scope: Scope
) -> bool | None:
    left = evaluate(expression.left, found, scope)
    right = evaluate(expression.right, found, scope)
    if left is None or right is None:
        return None
    match expression.operator:
        case "in":
            assert isinstance(expression.right, syntax.ListOf)
            assert isinstance(right, tuple)
            place = expression.left.span
            sound = [
                _comparable(place, left, item.span, value, found)
                for item, value in zip(expression.right.items, right, strict=True)
            ]
            return left in right if all(sound) else None
        case "==" | "!=" as sign:
            first, second = expression.left.span, expression.right.span
            if not _comparable(first, left, second, right, found):
                return None
            return (left == right) is (sign == "==")
        case order:
            if not _is_number(left) or not _is_number(right):
                bad, value = expression.left, left
                if _is_number(left):
                    bad, value = expression.right, right
                found.append(wrong_value("a number", value, bad.span))
                return None
            assert isinstance(left, int | Fraction)
            assert isinstance(right, int | Fraction)
            return _ORDERS[order](left, right)


def _comparable(
    first: Span, left: Value, second: Span, right: Value, found: list[Diagnostic]
) -> bool:
    """Whether two values can be equal at all: a comparison that cannot is a mistake."""
    if kind_of(left) == kind_of(right):
        return True
    found.append(
        Diagnostic(
            "DFS108",
            f"{kind_of(left)} never equals {kind_of(right)}",
            Label(second, f"this is {shown(right)}"),
            (Label(first, f"this is {shown(left)}"),),
        )
    )
    return False


def _is_number(value: Value) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool)


def _arithmetic(
    expression: syntax.Arithmetic, found: list[Diagnostic], scope: Scope
) -> Number | None:
    operands = []
    for side in (expression.left, expression.right):
        value = evaluate(side, found, scope)
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
    if -LIMIT < result < LIMIT and result.denominator < LIMIT:
        return result
    what = "exact" if -LIMIT < result < LIMIT else "large"
    found.append(
        Diagnostic(
            "DFS007",
            f"this number is too {what}",
            Label(expression.span, "more than 18 digits"),
        )
    )
    return None


def wrong_value(wanted: str, value: Value, span: Span) -> Diagnostic:
    """For a value of another kind than its place takes."""
    return Diagnostic(
        "DFS108", f"this must be {wanted}", Label(span, f"this is {shown(value)}")
    )


def shown(value: Value) -> str:
    """A short value itself, a long one by its kind."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value}"
        case Fraction():
            return "a decimal"
        case str():
            return "a text"
        case tuple():
            return "a list"


def kind_of(value: Value) -> str:
    """What a value is, in words; values of one kind can be compared."""
    match value:
        case bool():
            return "true or false"
        case int() | Fraction():
            return "a number"
        case str():
            return "a text"
        case tuple():
            return "a list"


def written(value: Value) -> str:
    """A value as it would be written in a schedule."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value}"
        case Fraction():
            return decimal(value)
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{', '.join(map(written, value))}]"


def decimal(value: Fraction) -> str:
    """All digits of a decimal: a whole number over a product of twos and fives."""
    digits = 0
    while (value * 10**digits).denominator > 1:
        digits += 1
    whole = int(abs(value) * 10**digits)
    text = f"{whole:0{digits + 1}}"
    sign = "-" if value < 0 else ""
    return f"{sign}{text[: len(text) - digits]}.{text[len(text) - digits :] or '0'}"


def options_by_name(
    arguments: Sequence[syntax.Argument],
    statement: str,
    known: Sequence[str],
    found: list[Diagnostic],
) -> dict[str, syntax.Argument]:
    """The options of a statement by their names, each at most once."""
    taken: dict[str, syntax.Argument] = {}
    for argument in arguments:
        name = argument.name.text
        if name in taken:
            found.append(
                given_twice(
                    f"option '{name}'", argument.name.span, taken[name].name.span
                )
            )
        elif name not in known:
            kind = f"option of '{statement}' called"
            found.append(unknown_name(kind, name, argument.name.span, known))
        else:
            taken[name] = argument
    return taken


def flag(option: syntax.Argument | None, found: list[Diagnostic]) -> bool:
    """What an option says that is true or false; one that is not given is false."""
    if option is None:
        return False
    value = evaluate(option.value, found, {})
    if value is not None and not isinstance(value, bool):
        found.append(wrong_value("true or false", value, option.value.span))
    return value is True
