"""Python source laid out as `ruff format` leaves it, without running a formatter.

Only the shapes that generated modules hold are known: statements with one bracketed
expression that may have to be broken over lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    if len(line) <= WIDTH or isinstance(expression, str) or not expression.items:
        return [line]
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


def commented(line: str, comment: str) -> list[str]:
    """A statement with a comment behind it, or above it when it would be too long."""
    if not comment:
        return [line]
    joined = f"{line}  # {comment}"
    if len(joined) <= WIDTH:
        return [joined]
    margin = line[: len(line) - len(line.lstrip())]
    words, lines, current = comment.split(), [], f"{margin}#"
    for word in words:
        if len(current) + 1 + len(word) > WIDTH and current != f"{margin}#":
            lines.append(current)
            current = f"{margin}#"
        current += f" {word}"
    return [*lines, current, line]


def docstring(paragraphs: Sequence[str], indent: int) -> list[str]:
    """A docstring; its text cannot end the string early."""
    margin = " " * indent
    text = [_escape(line.rstrip()) for p in paragraphs for line in p.split("\n")]
    if len(text) == 1:
        return [f'{margin}"""{_ending(text[0])}"""']
    body = [f"{margin}{line}" if line else "" for line in text[1:]]
    return [f'{margin}"""{text[0]}', *body, f'{margin}"""']


def _escape(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"""', "'''")


def _ending(line: str) -> str:
    return f"{line} " if line.endswith('"') else line


def string(text: str) -> str:
    """A string literal in double quotes, as the formatter writes it."""
    quoted = repr(text)
    if quoted.startswith('"'):
        return quoted
    inner = quoted[1:-1]
    if '"' in inner:
        return quoted if "'" not in text else repr(text)
    return f'"{inner}"'
