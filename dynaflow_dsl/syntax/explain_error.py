"""One error of the parser, in the words of the user's file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import cast

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax.forms import FORMS, HABITS, forms_for, is_call
from dynaflow_dsl.syntax.layout import LogicalLine
from dynaflow_dsl.syntax.mistakes import Mistake, Place, error_keys, known_mistakes
from dynaflow_dsl.syntax.operations_in import ways_to_group, without_in

MAX_EXPECTED = 6
MAX_SHOWN = 30

_KINDS = {
    "NAME": "a name",
    "PREV_NAME": "prev.NAME",
    "PATH": "a module path",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a text in quotes",
    "COMPARE": "a comparison",
    "_INDENT": "an indented block",
    "_NL": "end of line",
    "_DEDENT": "end of block",
    "$END": "end of file",
}
_STRUCTURE = ("_NL", "_DEDENT", "$END")

_CLOSING = {")": "(", "]": "["}

_CHARACTER_HELPS = {
    "'": "texts stand in double quotes",
    ";": "a statement ends with its line",
    "{": "blocks are made by indentation",
    "}": "blocks are made by indentation",
    "&": "write 'and' in conditions, '|' in timelines",
    "!": "write 'not', or '!=' to compare",
    "\u201c": "texts stand in plain double quotes",
    "\u201d": "texts stand in plain double quotes",
    "\u2018": "texts stand in plain double quotes",
    "\u2019": "texts stand in plain double quotes",
    "/": "write '.' in a module path, '|' between steps, '//' to divide",
    ".": "the names in a module path stand between single dots",
    "\r": "lines end with a line feed, or with carriage return and line feed",
    "\u00a0": "this is a no-break space: use an ordinary one",
}


def explain_error(
    error: UnexpectedInput,
    source: Source,
    lines: Sequence[LogicalLine],
    tables: Lark,
) -> Diagnostic:
    """The diagnostic for an error; `lines` are the logical lines that were parsed."""
    match error:
        case UnexpectedToken():
            return _unexpected_word(error, source, lines, tables)
        case UnexpectedCharacters():
            return _unexpected_character(source, error_offset(error))
    raise error


def last_line(lines: Sequence[LogicalLine], offset: int) -> LogicalLine | None:
    """The last logical line that starts at or before an offset."""
    before = [line for line in lines if line.start <= offset]
    return before[-1] if before else None


def error_offset(error: UnexpectedInput) -> int:
    """Where the parser stopped, in characters."""
    if isinstance(error, UnexpectedToken):
        return error.token.start_pos or 0
    return cast(int, error.pos_in_stream)


def _unexpected_character(source: Source, offset: int) -> Diagnostic:
    character = source.text[offset]
    span = Span(source, offset, offset + 1)
    if character == '"':
        return Diagnostic(
            "DFS001",
            "this text has no closing quote",
            Label(span, "opened here"),
            helps=("a text ends on the line where it begins",),
        )
    shown = f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
    helps = _CHARACTER_HELPS.get(character)
    if character.isalpha():
        helps = "names have the letters a to z, digits and '_'"
    return Diagnostic(
        "DFS001",
        f"unexpected character {shown}",
        Label(span, "here"),
        helps=(helps,) if helps else (),
    )


def _unexpected_word(
    error: UnexpectedToken,
    source: Source,
    lines: Sequence[LogicalLine],
    tables: Lark,
) -> Diagnostic:
    word = error.token
    accepted = sorted(error.accepts)
    meant = HABITS.get(word.lower()) if word.type == "NAME" else None
    if meant is not None and meant in _literals(accepted, tables):
        return Diagnostic(
            "DFS004",
            f"unexpected '{word}'",
            Label(_place(word, source, lines, "word"), "no word of the language"),
            helps=(f"write {FORMS[meant]}",),
        )
    known = known_mistakes()
    for key in error_keys(error, tables):
        if key in known:
            return _mistake(known[key], word, source, lines, tables)
    if word.type == "_INDENT":
        return _indented(word, source, lines)
    if word in _CLOSING and _opens_nowhere(word, source, lines):
        return Diagnostic(
            "DFS005",
            f"this '{word}' closes nothing",
            Label(_place(word, source, lines, "word"), "opened nowhere"),
            helps=(f"remove it, or add '{_CLOSING[word]}'",),
        )
    text, before = _statement(word, source, lines)
    label = _expected(accepted, tables)
    if is_call(word, before):
        label = "a statement is no call"
    similar = _similar(word, accepted, tables)
    return Diagnostic(
        "DFS004",
        f"unexpected {_shown(word)}",
        Label(_place(word, source, lines, "word"), label),
        helps=similar or forms_for(text, before, _literals(accepted, tables)),
    )


def _statement(
    word: Token, source: Source, lines: Sequence[LogicalLine]
) -> tuple[str, str]:
    """The statement of a word from its first one on, and what stands before the word.

    The end of a line is of the line that it ends.
    """
    start = int(word.start_pos or 0)
    line = last_line(lines, start - 1 if word.type in _STRUCTURE else start)
    if line is None:
        return "", ""
    return source.text[line.start : line.end], source.text[line.start : start]


def _mistake(
    mistake: Mistake,
    word: Token,
    source: Source,
    lines: Sequence[LogicalLine],
    tables: Lark,
) -> Diagnostic:
    if mistake.place == "joined" and word.type == "PATH":
        apart = without_in(word, source)
        if apart is not None:
            return apart
    helps = mistake.helps
    line = last_line(lines, int(word.start_pos or 0))
    if mistake.code == "DFS015" and line is not None:
        helps = ways_to_group(word, line, source, tables) or helps
    return Diagnostic(
        mistake.code,
        mistake.message,
        Label(_place(word, source, lines, mistake.place), mistake.label),
        helps=helps,
    )


def _opens_nowhere(word: Token, source: Source, lines: Sequence[LogicalLine]) -> bool:
    """Whether no bracket of a statement is open where one is closed."""
    end = int(word.start_pos or 0)
    line = last_line(lines, end)
    before = source.text[line.start if line else end : end]
    tokens = re.sub(r'"[^"\n]*"|#[^\n]*', "", before)
    return tokens.count(_CLOSING[word]) <= tokens.count(word)


def _shown(word: Token) -> str:
    if word.type in (*_STRUCTURE, "_INDENT"):
        return _KINDS[word.type]
    text = str(word)
    return f"'{text}'" if len(text) <= MAX_SHOWN else f"'{text[:MAX_SHOWN]}...'"


def _expected(accepted: Sequence[str], tables: Lark) -> str:
    literals = _literals(accepted, tables)
    kinds = [kind for kind in accepted if kind in _KINDS and kind not in _STRUCTURE]
    words = sorted(text for text in literals if text.isalpha())
    signs = sorted(text for text in literals if not text.isalpha())
    names = [f"'{text}'" for text in words]
    names += dict.fromkeys(_KINDS[kind] for kind in kinds)
    names += [f"'{text}'" for text in signs]
    # The end of the line is worth saying only where no word is what the user wants.
    if not kinds and not words:
        names += [_KINDS[kind] for kind in _STRUCTURE if kind in accepted]
    more = " ..." if len(names) > MAX_EXPECTED else ""
    return f"expected {', '.join(names[:MAX_EXPECTED])}{more}"


def _literals(accepted: Sequence[str], tables: Lark) -> list[str]:
    return [
        terminal.pattern.value
        for terminal in tables.terminals
        if terminal.name in accepted and terminal.pattern.type == "str"
    ]


def _similar(word: Token, accepted: Sequence[str], tables: Lark) -> tuple[str, ...]:
    if word.type == "INT" and "NAME" in accepted and "INT" not in accepted:
        return ("a name begins with a letter or '_'",)
    if word.type != "NAME":
        return ()
    keywords = [text for text in _literals(accepted, tables) if text.isalpha()]
    close = difflib.get_close_matches(word.lower(), keywords, n=1)
    return (f"did you mean '{close[0]}'?",) if close else ()


def _place(
    word: Token, source: Source, lines: Sequence[LogicalLine], place: Place
) -> Span:
    start, end = int(word.start_pos or 0), int(word.end_pos or 0)
    if word.type in _STRUCTURE or place == "before":
        # A word that ends a line or a block has no place of its own worth showing.
        offset = start if word.type == "_NL" else start - 1
        line = last_line(lines, offset)
        stop = line.end if line else 0
        if place == "before" and stop:
            return Span(source, stop - 1, stop)
        return Span(source, stop, stop)
    if place == "joined":
        joined = start
        while joined and (
            source.text[joined - 1].isalnum() or source.text[joined - 1] == "_"
        ):
            joined -= 1
        return Span(source, joined, start)
    return Span(source, start, end)


def _indented(word: Token, source: Source, lines: Sequence[LogicalLine]) -> Diagnostic:
    """A line that is indented although the line above opens no block."""
    start = int(word.start_pos or 0)
    blocks: list[int] = []
    for line in lines:
        if line.start >= start:
            break
        while blocks and blocks[-1] >= line.indent:
            blocks.pop()
        blocks.append(line.indent)
    current = last_line(lines, start)
    indent = current.indent if current else 0
    return Diagnostic(
        "DFS003",
        "this line fits no open block",
        Label(Span(source, start - indent, start), f"indented by {indent}"),
        helps=(f"open blocks start at column {', '.join(map(str, blocks))}",),
    )
