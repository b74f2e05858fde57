"""Conditions on the sizes of a step: all else replaced by its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve.findings import unknown_name
from dynaflow_dsl.resolve.intervals import Bounds, interval_of
from dynaflow_dsl.resolve.model import Value
from dynaflow_dsl.resolve.values import evaluate, wrong_value
from dynaflow_dsl.resolve.walk import symbols
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

# An expression as it is written, and what it was folded to.
_Side: TypeAlias = "tuple[syntax.Expression, Value | syntax.Expression | None]"
# Kinds of expressions that sizes leave open.
Kind: TypeAlias = Literal["a number", "a condition"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names of a condition stand for in one entry.

    `values` are parameters, facts, sizes that are the same in every step, and `phase`.
    `bounds` are the sizes that differ from step to step. `open_names` are facts whose
    value is left open: a comparison with one is a condition of its own.
    """

    values: Mapping[str, Value | None]
    bounds: Bounds
    open_names: frozenset[str] = frozenset()


@dataclass(slots=True)
class Folder:
    """Folds conditions; what is wrong with them goes into `found`.

    `others` are names that other entries know, each with such an entry, for messages.
    """

    scope: Scope
    entry: str
    found: list[Diagnostic]
    others: Mapping[str, str] = field(default_factory=dict)
    opened: dict[str, None] = field(default_factory=dict)

    def condition(
        self, expression: syntax.Expression
    ) -> bool | syntax.Expression | None:
        """True, false, what is left of a condition, or None after an error."""
        folded = self.fold(expression)
        match folded:
            case None | bool():
                return folded
            case int() | Fraction() | str() | tuple():
                self.found.append(wrong_value("a condition", folded, expression.span))
                return None
        if kind_of(folded) != "a condition":
            self._wrong("a condition", "a number", expression.span)
            return None
        return folded

    def fold(self, expression: syntax.Expression) -> Value | syntax.Expression | None:
        """The value of an expression, or what is left of it; None after an error."""
        match expression:
            case syntax.Logical():
                return self._logical(expression)
            case syntax.Not(operand, span):
                inner = self.condition(operand)
                if inner is None or isinstance(inner, bool):
                    return None if inner is None else not inner
                return syntax.Not(inner, span)
            case syntax.Comparison() if self._reads_open(expression):
                return self._open(expression)
            case syntax.Comparison():
                return self._comparison(expression)
            case syntax.Arithmetic():
                return self._arithmetic(expression)
            case syntax.Symbol(name) if name in self.scope.open_names:
                return self._open(expression)
            case syntax.Symbol(name, span):
                return self._symbol(name, span)
            case _:
                return evaluate(expression, self.found, self.scope.values)

    def _symbol(self, name: str, span: Span) -> Value | syntax.Expression | None:
        if name in self.scope.values:
            return self.scope.values[name]
        if name in self.scope.bounds:
            return syntax.Symbol(name, span)
        if name in self.others:
            self.found.append(
                Diagnostic(
                    "DFS102",
                    f"the entry '{self.entry}' has no size '{name}'",
                    Label(span, "unknown there"),
                    helps=(f"write 'phase == {self.others[name]} and' in front of it",),
                )
            )
            return None
        known = (*self.scope.values, *self.scope.bounds)
        self.found.append(unknown_name("size, fact or parameter", name, span, known))
        return None

    def _logical(self, expression: syntax.Logical) -> bool | syntax.Expression | None:
        left = self.condition(expression.left)
        decides = expression.operator == "or"
        if left is None or left is decides:
            # As in `require`, the right side may only make sense behind the left one.
            return left
        right = self.condition(expression.right)
        if isinstance(left, bool) or right is None:
            return right
        if isinstance(right, bool):
            return right if right is decides else left
        return syntax.Logical(expression.operator, left, right, expression.span)

    def _comparison(
        self, expression: syntax.Comparison
    ) -> bool | syntax.Expression | None:
        listed = expression.right
        others = listed.items if isinstance(listed, syntax.ListOf) else (listed,)
        sides = (expression.left, *others)
        values = [value for side in sides if (value := self.fold(side)) is not None]
        if len(values) < len(sides):
            return None
        pairs = zip(values, sides, strict=True)
        left, *rest = (literal(value, side.span) for value, side in pairs)
        right = (
            syntax.ListOf(tuple(rest), listed.span)
            if isinstance(listed, syntax.ListOf)
            else rest[0]
        )
        folded = syntax.Comparison(expression.operator, left, right, expression.span)
        if not any(map(_is_open, values)):
            truth = evaluate(folded, self.found, {})
            return truth if isinstance(truth, bool) else None
        return folded if self._are_numbers(zip(sides, values, strict=True)) else None

    def _arithmetic(
        self, expression: syntax.Arithmetic
    ) -> Value | syntax.Expression | None:
        sides = (expression.left, expression.right)
        left, right = (self.fold(side) for side in sides)
        if left is None or right is None:
            return None
        folded = syntax.Arithmetic(
            expression.operator,
            literal(left, sides[0].span),
            literal(right, sides[1].span),
            expression.span,
        )
        if not (_is_open(left) or _is_open(right)):
            return evaluate(folded, self.found, {})
        pairs = zip(sides, (left, right), strict=True)
        if not self._are_numbers(pairs):
            return None
        if expression.operator in ("//", "%"):
            low, high = interval_of(folded.right, self.scope.bounds)
            if low <= 0 <= high:
                self.found.append(
                    Diagnostic(
                        "DFS108",
                        "this may divide by zero",
                        Label(
                            expression.right.span,
                            "always 0" if low == high else "0 for some sizes of a step",
                        ),
                        helps=("divide by a number that is above 0 in every step",),
                    )
                )
                return None
        return folded

    def _are_numbers(self, sides: Iterable[_Side]) -> bool:
        """Whether all sides are numbers; every one that is not is said."""
        judged = [self._is_number(value, side.span) for side, value in sides]
        return all(judged)

    def _is_number(self, value: Value | syntax.Expression | None, span: Span) -> bool:
        match value:
            case bool() | str() | tuple():
                self.found.append(wrong_value("a number", value, span))
                return False
            case None | int() | Fraction():
                return value is not None
        if kind_of(value) != "a number":
            self._wrong("a number", "a condition", span)
            return False
        return True

    def _wrong(self, wanted: str, given: str, span: Span) -> None:
        message = f"this must be {wanted}"
        self.found.append(
            Diagnostic("DFS108", message, Label(span, f"this is {given}"))
        )

    # ---- facts left open -------------------------------------------------------------

    def _reads_open(self, expression: syntax.Expression) -> bool:
        return any(each.name in self.scope.open_names for each in symbols(expression))

    def _open(self, expression: syntax.Expression) -> syntax.Expression:
        """A condition that some value of the facts may make true, and another false."""
        name = f"?{' '.join(expression.span.text.split())}"
        self.opened[name] = None
        return syntax.Symbol(name, expression.span)


def kind_of(expression: syntax.Expression) -> Kind:
    """What an expression is that sizes leave open."""
    match expression:
        case syntax.Not() | syntax.Logical() | syntax.Comparison():
            return "a condition"
        case syntax.Symbol(name) if name.startswith("?"):
            return "a condition"
    return "a number"


def assuming(
    condition: bool | syntax.Expression, truths: Mapping[str, bool]
) -> bool | syntax.Expression:
    """A condition in which the open comparisons of these names are decided."""
    match condition:
        case syntax.Symbol(name):
            return truths[name]
        case syntax.Not(operand, span):
            inner = assuming(operand, truths)
            return not inner if isinstance(inner, bool) else syntax.Not(inner, span)
        case syntax.Logical(operator, left, right, span):
            one, other = assuming(left, truths), assuming(right, truths)
            decides = operator == "or"
            if decides in (one, other):
                return decides
            if isinstance(one, bool):
                return other
            if isinstance(other, bool):
                return one
            return syntax.Logical(operator, one, other, span)
    return condition


def literal(value: Value | syntax.Expression, span: Span) -> syntax.Expression:
    """A value as it is written in an expression."""
    match value:
        case bool():
            return syntax.Boolean(value, span)
        case int() | Fraction():
            return syntax.Number(value, span)
        case str():
            return syntax.String(value, span)
        case tuple():
            return syntax.ListOf(tuple(literal(item, span) for item in value), span)
    return value


def _is_open(value: Value | syntax.Expression | None) -> bool:
    return value is not None and not isinstance(
        value, bool | int | Fraction | str | tuple
    )
