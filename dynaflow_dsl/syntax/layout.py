"""Lines and indentation: found in the text before the parser sees it.

The scan knows three things of the language: strings, comments and brackets. That is
enough to tell where statements begin, and so to report tabs, bad dedents and brackets
that are never closed at their own place, all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lark import Token
from lark.lark import PostLex

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax.words import OPENERS

# Later stages walk expressions and selectors by recursion. What makes either deeper is
# one of these, so a bound on their number is a bound on the depth.
MAX_DEPTH = 200

# The parser's time grows with the square of a statement's length.
MAX_LENGTH = 10_000

_PIECE = re.compile(
    r"""
      (?P<skip>    [ \t]+ | \r(?=\n) | \A\ufeff | \#[^\n]* )
    | (?P<newline> \n )
    | (?P<string>  "[^"\n]*"? )
    | (?P<open>    [(\[] )
    | (?P<close>   [)\]] )
    | (?P<word>    [A-Za-z_][A-Za-z0-9_]* )
    | (?P<nest>    [-+*/%] )
    | (?P<other>   [0-9]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NESTING_WORDS = frozenset(["and", "or", "not", "in"])


@dataclass(frozen=True, slots=True)
class LogicalLine:
    """One statement's line: from its first to behind its last character.

    Brackets continue a line. `indent` is the number of characters before it.
    """

    start: int
    end: int
    indent: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All logical lines, and what is wrong with some of them.

    `broken` holds the lines that a diagnostic is about.
    """

    lines: tuple[LogicalLine, ...]
    broken: tuple[LogicalLine, ...]
    diagnostics: tuple[Diagnostic, ...]


def scan(source: Source) -> Layout:
    """Find the logical lines of a text."""
    lines: list[LogicalLine] = []
    broken: list[LogicalLine] = []
    found: list[Diagnostic] = []
    text = source.text
    blocks = [0]
    misfit = -1
    for line, depth, unclosed in _logical_lines(text):
        margin = Span(source, line.start - line.indent, line.start)
        fits = _follow(line.indent, blocks, first=not lines)
        lines.append(line)
        problem = None
        if "\t" in margin.text:
            problem = _tab(margin)
        elif not fits:
            # A block that is moved as a whole is one mistake.
            if line.indent == misfit:
                broken.append(line)
            else:
                problem = _misfit(margin, blocks)
        elif unclosed is not None:
            problem = _unclosed(source, unclosed, line)
        elif depth > MAX_DEPTH or line.end - line.start > MAX_LENGTH:
            problem = _too_large(Span(source, line.start, line.end), depth)
        misfit = -1 if fits else line.indent
        if problem is not None:
            broken.append(line)
            found.append(problem)
    return Layout(tuple(lines), tuple(broken), tuple(found))


def _logical_lines(text: str) -> Iterator[tuple[LogicalLine, int, int | None]]:
    """Logical lines, each with its depth and the place of an unclosed bracket."""
    start = end = -1
    operators = deepest = 0
    brackets: list[int] = []
    at_line_start = True
    for match in _PIECE.finditer(text):
        kind = match.lastgroup
        place = match.start()
        if kind == "skip":
            continue
        if kind == "newline":
            at_line_start = True
            if start >= 0 and not brackets:
                yield _line(text, start, end), operators + deepest, None
                start = -1
            continue
        opens = at_line_start and kind == "word" and match.group() in OPENERS
        if opens and brackets:
            yield _line(text, start, end), operators + deepest, brackets[0]
            start = -1
        if start < 0:
            start, operators, deepest, brackets = place, 0, 0, []
        at_line_start = False
        end = match.end()
        if kind == "open":
            brackets.append(place)
            deepest = max(deepest, len(brackets))
        elif kind == "close" and brackets:
            brackets.pop()
        elif kind == "nest" or match.group() in _NESTING_WORDS:
            operators += 1
    if start >= 0:
        unclosed = brackets[0] if brackets else None
        yield _line(text, start, end), operators + deepest, unclosed


def _line(text: str, start: int, end: int) -> LogicalLine:
    line_start = text.rfind("\n", 0, start) + 1
    margin = text[line_start:start].removeprefix("\ufeff")
    return LogicalLine(start, end, len(margin))


def _follow(indent: int, blocks: list[int], *, first: bool) -> bool:
    """Whether a line fits an open block or may open one; keeps `blocks` up to date.

    Whether a block may open here is for the parser to say, except on the first line.
    """
    if indent > blocks[-1]:
        if not first:
            blocks.append(indent)
        return not first
    while indent < blocks[-1] and blocks[-2] >= indent:
        blocks.pop()
    return indent == blocks[-1]


def _tab(margin: Span) -> Diagnostic:
    place = margin.start + margin.text.index("\t")
    return Diagnostic(
        "DFS002",
        "a tab in the indentation",
        Label(Span(margin.source, place, place + 1), "here"),
        helps=("indent with spaces",),
    )


def _misfit(margin: Span, blocks: list[int]) -> Diagnostic:
    columns = ", ".join(map(str, blocks))
    return Diagnostic(
        "DFS003",
        "this line fits no open block",
        Label(margin, f"indented by {margin.end - margin.start}"),
        helps=(f"open blocks start at column {columns}",),
    )


def _unclosed(source: Source, bracket: int, line: LogicalLine) -> Diagnostic:
    span = Span(source, bracket, bracket + 1)
    closing = {"(": ")", "[": "]"}[span.text]
    return Diagnostic(
        "DFS005",
        f"this '{span.text}' is never closed",
        Label(span, "opened here"),
        (Label(Span(source, line.end, line.end), "the statement ends here"),),
        helps=(f"add '{closing}'",),
    )


def _too_large(span: Span, depth: int) -> Diagnostic:
    if depth > MAX_DEPTH:
        what = f"more than {MAX_DEPTH} operators and brackets"
    else:
        what = f"more than {MAX_LENGTH} characters"
    return Diagnostic(
        "DFS006",
        "this statement is too large",
        Label(span, what),
        helps=("cut it into several statements",),
    )


class IndentTokens(PostLex):
    """Turns the width of line starts into _INDENT and _DEDENT tokens.

    Holds no state between or during parses: one instance serves every thread. Tabs and
    bad dedents were refused by `scan` before.
    """

    # With NAME allowed everywhere, a keyword ends where a word ends: without it,
    # `streamside` would read as `stream side`.
    always_accept = ("_NL", "NAME")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The tokens of `stream` with those of the blocks added."""
        brackets = 0
        blocks = [0]
        last: Token | None = None
        for token in stream:
            last = token
            if token.type != "_NL":
                if token.type in ("LPAR", "LSQB"):
                    brackets += 1
                elif token.type in ("RPAR", "RSQB") and brackets:
                    brackets -= 1
                yield token
                continue
            if brackets:
                continue
            yield token
            yield from _block_tokens(token, _margin(token), blocks)
        if last is not None:
            yield from _block_tokens(last, 0, blocks)


def _margin(token: Token) -> int:
    return len(token) - token.rfind("\n") - 1


def _block_tokens(token: Token, indent: int, blocks: list[int]) -> Iterable[Token]:
    if indent > blocks[-1]:
        blocks.append(indent)
        yield _at_end("_INDENT", token)
    while indent < blocks[-1]:
        blocks.pop()
        yield _at_end("_DEDENT", token)


def _at_end(kind: str, token: Token) -> Token:
    place = token.end_pos
    return Token(kind, "", place, end_pos=place)
