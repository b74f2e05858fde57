"""Helps about `operation in path`, with the words that the user wrote."""

from __future__ import annotations

import re

from lark import Lark, Token, UnexpectedInput

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax.layout import LogicalLine

# The one kind that is a selector of its own, so that nothing can be added to it.
_ALONE = "weights"
_COMMENT = re.compile(r'("[^"\n]*")|#[^\n]*')


def ways_to_group(
    word: Token, line: LogicalLine, source: Source, tables: Lark
) -> tuple[str, ...]:
    """The readings of a selector in which `op in path` stands beside `+` or `-`.

    Nothing where the rest of the statement is no selector either.
    """
    start, end = int(word.start_pos or 0), int(word.end_pos or 0)
    before = _plain(source.text[line.start : start]).partition("=")[2].strip()
    after = _plain(source.text[end : line.end])
    if word in ("+", "-"):
        kind, _, first = before.partition(" in ")
        ways = [f"{kind} in ({_bare(first)} {word} {after})"]
        if kind != _ALONE:
            ways.append(f"({kind} in {first}) {word} {after}")
    elif word == "in":
        sum_, _, kind = before.rpartition(" ")
        ways = [f"{sum_} ({kind} in {after})"]
    else:
        ways = [f"{before} ({word} {after})"]
    sound = [way for way in ways if _is_selector(way, tables)]
    return (f"write {', or '.join(sound)}",) if sound else ()


def _plain(text: str) -> str:
    """A text on one line, without comments."""
    return " ".join(_COMMENT.sub(lambda m: m[1] or "", text).split())


def _bare(selector: str) -> str:
    """A selector without parentheses around one path."""
    return re.sub(r"^\((\S+)\)$", r"\1", selector)


def _is_selector(text: str, tables: Lark) -> bool:
    try:
        tables.parse(f"dfs 1\nparts p:\n    part a = {text}\n")
    except UnexpectedInput:
        return False
    return True


def without_in(path: Token, source: Source) -> Diagnostic | None:
    """For a path that stands apart from the name before it; None where they touch."""
    start, end = int(path.start_pos or 0), int(path.end_pos or 0)
    before = re.search(r"(\w+)[ \t]+$", source.text[:start])
    if before is None:
        return None
    kind = before[1]
    return Diagnostic(
        "DFS004",
        f"unexpected '{path}'",
        Label(Span(source, start, end), f"'in' is missing after '{kind}'"),
        helps=(f"write '{kind} in {path}'",),
    )
