"""Text to syntax tree."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lark import Token, Tree, UnexpectedInput, UnexpectedToken

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax.build import Builder
from dynaflow_dsl.syntax.explain_error import error_offset, explain_error, last_line
from dynaflow_dsl.syntax.layout import Layout, LogicalLine, scan
from dynaflow_dsl.syntax.model import SyntaxTree
from dynaflow_dsl.syntax.parser import parser

EDITION = 1

# Bounds on the work that a broken file can cause: errors shown, and characters parsed.
MAX_ERRORS = 20
MAX_PARSED = 1_000_000

_VERSION = re.compile(r"dfs[ \t]+([0-9]+)")

# Mistakes that removing a broken line can bring about by itself: an empty block, a
# `select` without `else`.
_FOLLOW_UPS = ("DFS011", "DFS013")


def parse(source: Source) -> Result[SyntaxTree]:
    """Read a `.dfs` file.

    Any text gives a result: a tree, or at least one error. Several independent errors
    are found at once. Each broken line is blanked, with the block it opens, and the
    text is parsed again.
    """
    layout = scan(source)
    version = _check_version(source, layout)
    if version is not None:
        return Result(None, (version,))
    found = list(layout.diagnostics[:MAX_ERRORS])
    attempt = _Attempt(source, layout)
    budget = MAX_PARSED
    while len(found) < MAX_ERRORS and budget > 0 and attempt.has_version:
        try:
            tree = parser().parse(attempt.text)
        except UnexpectedInput as error:
            budget -= error_offset(error) + 1
            diagnostic = explain_error(error, source, attempt.lines, parser())
            if attempt.blank_after(error, diagnostic):
                found.append(diagnostic)
        else:
            return _finish(source, layout, tree, found)
    return Result(None, _in_order(found))


def _finish(
    source: Source, layout: Layout, tree: Tree[Token], found: list[Diagnostic]
) -> Result[SyntaxTree]:
    if found:
        return Result(None, _in_order(found))
    builder = Builder(source, {line.start: line.end for line in layout.lines})
    file = builder.file(tree)
    if builder.found:
        return Result(None, _in_order(builder.found))
    return Result(file)


def _in_order(found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda d: d.primary.span.start if d.primary else 0))


def _check_version(source: Source, layout: Layout) -> Diagnostic | None:
    """The first statement must name an edition that is known: the rest hangs on it."""
    helps = (f"the first statement of a file is 'dfs {EDITION}'",)
    if not layout.lines:
        span = Span(source, 0, 0)
        return Diagnostic(
            "DFS014", "this file says nothing", Label(span, "here"), helps=helps
        )
    first = layout.lines[0]
    if first in layout.broken:
        return layout.diagnostics[0]
    span = Span(source, first.start, first.end)
    match = _VERSION.fullmatch(span.text)
    if match is None and re.match(r"dfs\b", span.text):
        message = "this is no edition of the language"
        text = "an edition is one whole number"
        return Diagnostic("DFS014", message, Label(span, text), helps=helps)
    if match is None:
        message = "the version of the language comes first"
        return Diagnostic("DFS014", message, Label(span, "before this"), helps=helps)
    if match[1] != str(EDITION):
        number = Span(source, first.start + match.start(1), first.end)
        return Diagnostic(
            "DFS014",
            "this edition of the language is not known",
            Label(number, f"this dfsc knows edition {EDITION}"),
        )
    return None


class _Attempt:
    """The text that is parsed next, and the logical lines that are left of it."""

    def __init__(self, source: Source, layout: Layout) -> None:
        # The same length as the source, so that places agree, and one line break more.
        text = source.text
        self.text = (" " if text.startswith("\ufeff") else text[:1]) + text[1:] + "\n"
        self.lines = list(layout.lines)
        self.version = layout.lines[0]
        self.blanked: set[LogicalLine] = set()
        for line in layout.broken:
            self._blank(self._with_body(line))

    @property
    def has_version(self) -> bool:
        """Whether the first statement is still there: without it nothing parses."""
        return self.version not in self.blanked

    def blank_after(self, error: UnexpectedInput, diagnostic: Diagnostic) -> bool:
        """Blank what an error is about; whether the error is worth reporting.

        It is not when lines blanked before are the reason for it.
        """
        offset = error_offset(error)
        culprit = last_line(self.lines, offset)
        token = error.token if isinstance(error, UnexpectedToken) else None
        kind = token.type if token is not None else ""
        # `else` stands below the lines with `when`, of which none may be left.
        ends = kind in ("_DEDENT", "$END") or token in ("else", "default", "otherwise")
        structural = diagnostic.code in _FOLLOW_UPS or ends
        if culprit is not None and culprit.start < offset < culprit.end:
            structural = False
        if structural:
            culprit = last_line(self.lines, offset - 1)
        if culprit is None or not structural:
            self._blank(self._with_body(culprit or self.lines[0]))
            return True
        declaration = self._declaration(culprit)
        follows = any(line in self.blanked for line in declaration)
        self._blank(declaration if diagnostic.code != "DFS011" else [culprit])
        return not follows

    def _with_body(self, header: LogicalLine) -> list[LogicalLine]:
        """A line and the deeper ones below it."""
        block = [header]
        for line in self.lines:
            if line.start > header.start:
                if line.indent <= header.indent:
                    break
                block.append(line)
        return block

    def _declaration(self, member: LogicalLine) -> list[LogicalLine]:
        """All lines of the top-level statement that a line belongs to."""
        everything = sorted({*self.lines, *self.blanked}, key=lambda line: line.start)
        heads = [line for line in everything if line.start <= member.start]
        head = next((h for h in reversed(heads) if h.indent == 0), heads[0])
        block = [head]
        for line in everything:
            if line.start > head.start:
                if line.indent == 0:
                    break
                block.append(line)
        return block

    def _blank(self, block: Sequence[LogicalLine]) -> None:
        """Remove neighbouring lines, given in order."""
        start, end = block[0].start, block[-1].end
        gap = re.sub(r"[^\n]", " ", self.text[start:end])
        self.text = self.text[:start] + gap + self.text[end:]
        self.blanked.update(block)
        self.lines = [line for line in self.lines if line not in self.blanked]
