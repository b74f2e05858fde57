"""Python source laid out as `ruff format` leaves it, without running a formatter.

Only the shapes that generated modules hold are known: statements with one bracketed
expression that may have to be broken over lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import TypeAlias

WIDTH = 88
STEP = 4


@dataclass(frozen=True, slots=True)
class Bracket:
    """`head(items)`, `[items]`, `{items}` or `(items)`.

    A call may keep all its items on one indented line; a display (list, dict, tuple)
    that does not fit goes one item per line at once.
    """

    head: str
    opening: str
    items: tuple[Expression, ...]

    @property
    def closing(self) -> str:
        """The bracket that ends it."""
        return {"(": ")", "[": "]", "{": "}"}[self.opening]

    @property
    def is_call(self) -> bool:
        """Whether a name stands before the bracket."""
        return bool(self.head) and not self.head.endswith((" ", "="))


Expression: TypeAlias = "str | Bracket"


def call(head: str, items: Sequence[Expression]) -> Bracket:
    """A call expression."""
    return Bracket(head, "(", tuple(items))


def listed(items: Sequence[Expression], head: str = "") -> Bracket:
    """A list display; `head` is a keyword with its `=`, or a key with its colon."""
    return Bracket(head, "[", tuple(items))


def flat(expression: Expression) -> str:
    """The expression on one line."""
    match expression:
        case str():
            return expression
        case Bracket(head, opening, items):
            inner = ", ".join(map(flat, items))
            if opening == "(" and len(items) == 1 and not expression.is_call:
                inner += ","
            return f"{head}{opening}{inner}{expression.closing}"


def lay_out(
    prefix: str, expression: Expression, suffix: str = "", indent: int = 0
) -> list[str]:
    """Lines of `prefix` + expression + `suffix` at an indentation, broken if long."""
    margin = " " * indent
    line = f"{margin}{prefix}{flat(expression)}{suffix}"
    if len(line) <= WIDTH or isinstance(expression, str):
        return [line]
    if not expression.items:
        inside = f"{margin}{' ' * STEP}{flat(expression)}"
        if not prefix.endswith("= ") or len(inside) > WIDTH:
            return [line]
        return [f"{margin}{prefix}(", inside, f"{margin}){suffix}"]
    opening = f"{margin}{prefix}{expression.head}{expression.opening}"
    closing = f"{margin}{expression.closing}{suffix}"
    if expression.is_call:
        inner = ", ".join(map(flat, expression.items))
        together = f"{margin}{' ' * STEP}{inner}"
        if len(together) <= WIDTH:
            return [opening, together, closing]
    lines = [opening]
    for item in expression.items:
        lines += lay_out("", item, ",", indent + STEP)
    return [*lines, closing]


def assigned(
    targets: Sequence[str], expression: Expression, indent: int = 0
) -> list[str]:
    """Lines of `a, b = expression`; without targets the expression alone.

    Several targets go one per line when not even the expression's first line fits
    behind them.
    """
    prefix = f"{', '.join(targets)} = " if targets else ""
    match expression:
        case Bracket(head, opening, items) if items:
            first = f"{prefix}{head}{opening}"
        case _:
            first = f"{prefix}{flat(expression)}"
    if len(targets) < 2 or indent + len(first) <= WIDTH:
        return lay_out(prefix, expression, "", indent)
    margin = " " * indent
    return [
        f"{margin}(",
        *(f"{margin}{' ' * STEP}{target}," for target in targets),
        *lay_out(") = ", expression, "", indent),
    ]


def deleted(names: Sequence[str], indent: int) -> list[str]:
    """`del` statements, as many as it takes to keep to the width."""
    margin = " " * indent
    lines: list[str] = []
    for name in names:
        if lines and len(lines[-1]) + 2 + len(name) <= WIDTH:
            lines[-1] += f", {name}"
        else:
            lines.append(f"{margin}del {name}")
    return lines


def commented(line: str, comment: str) -> list[str]:
    """A statement with a comment behind it, or above it when it would be too long."""
    joined = f"{line}  # {comment}"
    if len(joined) <= WIDTH:
        return [joined]
    return [*comment_above(line, comment), line]


def comment_above(line: str, comment: str) -> list[str]:
    """Comment lines as far in as the statement below them."""
    margin = line[: len(line) - len(line.lstrip())]
    words, lines, current = comment.split(), [], f"{margin}#"
    for word in words:
        if len(current) + 1 + len(word) > WIDTH and current != f"{margin}#":
            lines.append(current)
            current = f"{margin}#"
        current += f" {word}"
    return [*lines, current]


def docstring(paragraphs: Sequence[str], indent: int) -> list[str]:
    """A docstring; its text cannot end the string early.

    As the formatter has it, the lines below the first keep only what they are indented
    among each other.
    """
    margin = " " * indent
    whole = "\n".join(paragraphs).expandtabs().strip()
    first, *rest = (_escape(line.rstrip()) for line in whole.split("\n"))
    if first.startswith('"'):
        first = f" {first}"
    if not rest:
        return [f'{margin}"""{_ending(first)}"""']
    body = dedent("\n".join(rest)).split("\n")
    lines = [f"{margin}{line}" if line else "" for line in body]
    return [f'{margin}"""{first}', *lines, f'{margin}"""']


def _escape(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"""', "'''")


def _ending(line: str) -> str:
    return f"{line} " if line.endswith('"') else line


def string(text: str) -> str:
    """A string literal in double quotes unless single ones save escapes."""
    # With a double quote in it, `repr` writes single quotes around the text.
    inner = repr(f'{text}"')[1:-2]
    if text.count('"') > text.count("'"):
        return f"'{inner}'"
    swapped = {"\\'": "'", '"': '\\"'}
    inner = re.sub(r'\\.|"', lambda found: swapped.get(found[0], found[0]), inner)
    return f'"{inner}"'
