"""Expressions and selectors as words, with the parentheses that they need.

Parentheses belong to the layout: they stand where the grammar wants them, and around
`and` in `or` and `x in .path` in `or`, which people read in two ways.
"""

from __future__ import annotations

from fractions import Fraction

from dynaflow_dsl.formatting.model import Brackets, Gap, Piece, Sequence, Word
from dynaflow_dsl.syntax import model as syntax

# How tightly a form binds, as in the grammar.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _ATOM = range(7)
_FIRST_MATCH, _OPERATIONS, _SET, _PATH = range(4)


def value(node: syntax.Expression) -> Sequence:
    """An expression that may be put into parentheses over several lines."""
    match node:
        case syntax.ListOf() | syntax.Comparison(operator="in"):
            # The list has brackets of its own.
            return expression(node)
    return (Brackets("(", (expression(node),), ")", optional=True),)


def expression(node: syntax.Expression) -> Sequence:
    """An expression; it may be broken before its outermost operators."""
    match node:
        case syntax.Number(number):
            return (Word(decimal(number)),)
        case syntax.String(text):
            return (Word(f'"{text}"'),)
        case syntax.Boolean(truth):
            return (Word("true" if truth else "false"),)
        case syntax.Symbol(name):
            return (Word(name),)
        case syntax.ListOf(items):
            return list_of(items)
        case syntax.Not(operand):
            return (Word("not"), Gap.SPACE, *_operand(operand, _NOT))
        case syntax.Comparison("in", left, right):
            head = _operand(left, _SUM)
            return (*head, Gap.SPACE, Word("in"), Gap.SPACE, *expression(right))
        case syntax.Comparison(operator, left, right):
            head, tail = _operand(left, _SUM), _operand(right, _SUM)
            return (*head, Gap.BREAK, Word(operator), Gap.SPACE, *tail)
    binding = _binding(node)
    if _binding(node.left) == binding:
        chain = expression(node.left)
    else:
        chain = _operand(node.left, _clear(node.left, binding))
    tail = _operand(node.right, _clear(node.right, binding + 1))
    return (*chain, Gap.BREAK, Word(node.operator), Gap.SPACE, *tail)


def list_of(items: tuple[syntax.Expression, ...]) -> Sequence:
    """`[a, b]`. Its brackets are words: a comment can follow either."""
    inside = tuple(map(expression, items))
    return (Word("["), Brackets("", inside, "", listed=True), Word("]"))


def arguments(listed: tuple[syntax.Argument, ...]) -> Sequence:
    """`(name = value, ...)`, or nothing."""
    if not listed:
        return ()
    items = tuple(
        (Word(item.name.text), Gap.SPACE, Word("="), Gap.SPACE, *_argument(item.value))
        for item in listed
    )
    return (Brackets("(", items, ")", listed=True),)


def call(node: syntax.Call) -> Sequence:
    """`name(a = 1)`."""
    return (Word(node.name.text), *arguments(node.arguments))


def decimal(number: int | Fraction) -> str:
    """A number as the language writes it, without needless zeros."""
    if isinstance(number, int):
        return str(number)
    places = 1
    while (number * 10**places).denominator != 1:
        places += 1
    digits = str(int(number * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"


def selector(node: syntax.SelectorExpression) -> Sequence:
    """A selector; it may be broken before its outermost operators."""
    match node:
        case syntax.Path(anchor, pattern):
            start = "" if anchor == "scope" else anchor
            return (Word(f"{start}.{'.'.join(pattern)}"),)
        case syntax.PartReference(name):
            return (Word(name),)
        case syntax.OperationsIn(operation, scope):
            match operation:
                case syntax.String(text):
                    what = f'"{text}"'
                case syntax.Name(text):
                    what = text
            inside = _scope(scope, _PATH)
            return (Word(what), Gap.SPACE, Word("in"), Gap.SPACE, *inside)
        case syntax.FirstMatch(left, right):
            match left:
                case syntax.FirstMatch():
                    chain = selector(left)
                case _:
                    chain = _scope(left, _SET)
            return (*chain, Gap.BREAK, Word("or"), Gap.SPACE, *_scope(right, _SET))
        case syntax.SetOperation(operator, left, right):
            match left:
                case syntax.SetOperation():
                    chain = selector(left)
                case _:
                    chain = _scope(left, _SET)
            tail = _scope(right, _PATH)
            return (*chain, Gap.BREAK, Word(operator), Gap.SPACE, *tail)


def _argument(node: syntax.Expression) -> Sequence:
    match node:
        case syntax.Number() | syntax.String() | syntax.Boolean() | syntax.Symbol():
            return expression(node)
    return value(node)


def _operand(node: syntax.Expression, least: int) -> Sequence:
    return _enclosed(expression(node), needed=_binding(node) < least)


def _clear(node: syntax.Expression, least: int) -> int:
    """How tightly an operand must bind; `and` in `or` gets parentheses."""
    mixed = least <= _AND and _binding(node) == _AND
    return _ATOM if mixed else least


def _binding(node: syntax.Expression) -> int:
    match node:
        case syntax.Logical("or"):
            return _OR
        case syntax.Logical():
            return _AND
        case syntax.Not():
            return _NOT
        case syntax.Comparison():
            return _COMPARISON
        case syntax.Arithmetic("+" | "-"):
            return _SUM
        case syntax.Arithmetic():
            return _PRODUCT
    return _ATOM


def _scope(node: syntax.SelectorExpression, least: int) -> Sequence:
    match node:
        case syntax.FirstMatch():
            binding = _FIRST_MATCH
        case syntax.OperationsIn():
            binding = _OPERATIONS
        case syntax.SetOperation():
            binding = _SET
        case _:
            binding = _PATH
    return _enclosed(selector(node), needed=binding < least)


def _enclosed(content: Sequence, *, needed: bool) -> Sequence:
    """An operand: in parentheses if needed, else in one piece."""
    if needed:
        return (Brackets("(", (content,), ")"),)
    return tuple(map(_solid, content))


def _solid(piece: Piece) -> Piece:
    return Gap.SPACE if piece is Gap.BREAK else piece
