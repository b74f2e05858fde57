"""Comments and blank lines of a text: what the syntax tree leaves out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynaflow_dsl.formatting.model import PUNCTUATION, Comment
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax.layout import LogicalLine

# The terminals of the grammar, for a text that is known to parse.
_PIECE = re.compile(
    r"""
      (?P<space>   [ \t\r\n]+ )
    | (?P<comment> \#[^\n]* )
    | (?P<word>    "[^"\n]*"
                 | (?:prev|next|root)?(?:\.(?:\*\*|[A-Za-z0-9_*?]+))+
                 | (?:prev|next|root)?\.
                 | [A-Za-z_][A-Za-z0-9_]*
                 | [0-9]+\.[0-9]+ | [0-9]+
                 | [=!<>]= | //
                 | . )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class CommentLine:
    """A comment between statements; `column` is the width of its indentation."""

    text: str
    column: int
    blank_before: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a statement has around and within it.

    `indent` is the width of its own indentation; `within` has the comments before
    the first word, and those behind each word that comments are tied to.
    """

    indent: int
    above: tuple[CommentLine, ...]
    blank_before: bool
    within: tuple[tuple[Comment, ...], ...]
    behind: str | None


@dataclass(frozen=True, slots=True)
class Remarks:
    """The surroundings of every statement, and the comments below the last one."""

    statements: tuple[Surroundings, ...]
    below: tuple[CommentLine, ...]


def read_remarks(source: Source, lines: tuple[LogicalLine, ...]) -> Remarks:
    """Collect all comments and blank lines of a text whose statements are known."""
    text = source.text
    found = []
    top = text[: lines[0].start].removeprefix("\ufeff")
    above, blank = _between(top.split("\n")[:-1])
    for line, following in zip(lines, (*lines[1:], None), strict=True):
        stop = following.start if following else len(text)
        behind, *rest = text[line.end : stop].split("\n")
        within = _within(text[line.start : line.end])
        found.append(
            Surroundings(line.indent, above, blank, within, behind.strip() or None)
        )
        above, blank = _between(rest[:-1] if following else rest)
    return Remarks(tuple(found), above)


def _between(lines: list[str]) -> tuple[tuple[CommentLine, ...], bool]:
    """The comments among lines between statements; whether a blank line is last."""
    comments = []
    blank = False
    for line in lines:
        text = line.strip()
        if text:
            comments.append(CommentLine(text, line.index("#"), blank))
        blank = not text
    return tuple(comments), blank


def _within(text: str) -> tuple[tuple[Comment, ...], ...]:
    words: list[list[Comment]] = [[]]
    for match in _PIECE.finditer(text):
        piece = match.group()
        if match.lastgroup == "comment":
            before = text[: match.start()].rstrip(" \t")
            words[-1].append(Comment(piece.strip(), before.endswith("\n")))
        elif match.lastgroup == "word" and piece not in PUNCTUATION:
            words.append([])
    return tuple(map(tuple, words))
