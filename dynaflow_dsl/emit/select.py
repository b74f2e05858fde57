"""The functions that choose what a step runs, one for each entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dynaflow_dsl.emit.layout import (
    WIDTH,
    Bracket,
    Expression,
    call,
    comment_above,
    docstring,
    lay_out,
    string,
)
from dynaflow_dsl.plan.names import identifier
from dynaflow_dsl.resolve import Selection
from dynaflow_dsl.resolve.choices import EntryChoices
from dynaflow_dsl.syntax import model as syntax

# How tightly operators bind, in Python as in schedules.
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _ATOM = range(7)


@dataclass(frozen=True, slots=True)
class ChoiceText:
    """One function; `exact` tells whether it computes with decimals, as fractions."""

    entry: str
    name: str
    lines: tuple[str, ...]
    exact: bool


def write_choice(
    selection: Selection,
    choices: EntryChoices,
    classes: Mapping[tuple[str, str], str],
    new_name: Callable[[str], str],
) -> ChoiceText:
    """The function of one entry: sizes in, the method of a class out.

    `classes` are those of the module by schedule and entry. Every line of the `select`
    is repeated above what it became, also those that no step of the entry reaches.
    """
    name = new_name(f"choose_{choices.entry}")
    sizes = {size: identifier(size) for size in choices.sizes}
    lines = lay_out("def ", call(name, list(sizes.values())), ":")
    about = f"What a step of the entry {choices.entry} runs: the first that holds."
    lines += docstring([about], 4)
    reached = {chosen.line: chosen for chosen in choices.lines}
    fallback = next(c for (_, entry), c in classes.items() if entry == choices.entry)
    exact = False
    for number, line in enumerate(selection.select.lines):
        written = " ".join(line.span.text.split())
        chosen = reached.get(number)
        if chosen is None:
            lines += comment_above("    ", f"(not in {choices.entry}) {written}")
            continue
        lines += comment_above("    ", written)
        returned = f"return {fallback}.sequential"
        if line.schedule is not None:
            returned = f"return {classes[line.schedule, choices.entry]}.step"
        if chosen.condition is None:
            lines.append(f"    {returned}")
        else:
            lines += _if(chosen.condition, sizes)
            lines.append(f"        {returned}")
            exact |= _has_fractions(chosen.condition)
    return ChoiceText(choices.entry, name, tuple(lines), exact)


def loader_lines(executors: Sequence[str], choices: Sequence[ChoiceText]) -> list[str]:
    """The statement that makes the module's `load`."""
    arguments: list[Expression] = [*executors]
    if choices:
        chosen = tuple(f"{string(each.entry)}: {each.name}" for each in choices)
        arguments.append(Bracket("select=", "{", chosen))
    return lay_out("load = ", call("loader", arguments))


def _if(condition: syntax.Expression, sizes: Mapping[str, str]) -> list[str]:
    text, _ = _text(condition, sizes)
    line = f"    if {text}:"
    if len(line) <= WIDTH or not isinstance(condition, syntax.Logical):
        return [line]
    word = condition.operator
    first, *others = _operands(condition, word)
    rows = [f"        {_inside(first, sizes, word)}"]
    rows += [f"        {word} {_inside(each, sizes, word)}" for each in others]
    return ["    if (", *rows, "    ):"]


def _operands(condition: syntax.Expression, word: str) -> list[syntax.Expression]:
    """What a chain of `and` or of `or` joins."""
    match condition:
        case syntax.Logical(operator, left, right) if operator == word:
            return [*_operands(left, word), *_operands(right, word)]
    return [condition]


def _inside(expression: syntax.Expression, sizes: Mapping[str, str], word: str) -> str:
    return _operand(expression, sizes, _AND if word == "and" else _OR)


def _operand(
    expression: syntax.Expression, sizes: Mapping[str, str], least: int
) -> str:
    text, strength = _text(expression, sizes)
    return text if strength >= least else f"({text})"


def _text(expression: syntax.Expression, sizes: Mapping[str, str]) -> tuple[str, int]:
    """Python for an expression, and how tightly it binds."""
    match expression:
        case syntax.Number(Fraction() as value):
            return f"Fraction({value.numerator}, {value.denominator})", _ATOM
        case syntax.Number(value):
            return str(value), _ATOM if value >= 0 else _PRODUCT
        case syntax.Symbol(name):
            return sizes[name], _ATOM
        case syntax.ListOf(items):
            inner = ", ".join(_text(item, sizes)[0] for item in items)
            return f"({inner},)" if len(items) == 1 else f"({inner})", _ATOM
        case syntax.Not(operand):
            return f"not {_operand(operand, sizes, _NOT)}", _NOT
        case syntax.Logical(operator, left, right):
            strength = _AND if operator == "and" else _OR
        case syntax.Comparison(operator, left, right):
            one, other = (_operand(side, sizes, _SUM) for side in (left, right))
            return f"{one} {operator} {other}", _COMPARED
        case syntax.Arithmetic(operator, left, right):
            strength = _SUM if operator in "+-" else _PRODUCT
        case _:
            raise AssertionError(f"{type(expression).__name__} was not folded")
    one = _operand(left, sizes, strength)
    # These are read from the left: what stands on the right binds tighter.
    other = _operand(right, sizes, strength + 1)
    return f"{one} {operator} {other}", strength


def _has_fractions(expression: syntax.Expression) -> bool:
    match expression:
        case syntax.Number(value):
            return isinstance(value, Fraction)
        case syntax.ListOf(items):
            return any(map(_has_fractions, items))
        case syntax.Not(operand):
            return _has_fractions(operand)
        case syntax.Logical(_, left, right):
            return _has_fractions(left) or _has_fractions(right)
        case syntax.Comparison(_, left, right) | syntax.Arithmetic(_, left, right):
            return _has_fractions(left) or _has_fractions(right)
    return False
