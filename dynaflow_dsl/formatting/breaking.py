"""A statement as lines: which brackets are opened, and where its comments stand."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dynaflow_dsl.formatting.model import (
    INDENT,
    WIDTH,
    Brackets,
    Comment,
    Gap,
    Piece,
    Sequence,
    Word,
    flat,
    has_comments,
)
from dynaflow_dsl.syntax.words import OPENERS


@dataclass(frozen=True, slots=True)
class Broken:
    """The lines of a statement, and comments that found no brackets to stand in."""

    lines: tuple[str, ...]
    left_over: tuple[Comment, ...]


def break_lines(content: Sequence, level: int, first: Iterable[Comment]) -> Broken:
    """Lay out one statement over as few lines as its width and comments allow.

    `first` are comments before its first word, where it begins with a bracket.
    """
    writer = _Writer(level * INDENT)
    writer.waiting += first
    _segment(writer, content, 0)
    return writer.finish()


class _Writer:
    """The lines so far, and the comments that wait for the next chance to be written.

    A comment ends its line, so it has to wait until brackets are open.
    """

    def __init__(self, indent: int) -> None:
        self.indent = indent
        self.depth = 0
        self.waiting: list[Comment] = []
        self._lines: list[str] = []
        self._line = " " * indent
        self._gap = ""
        self._fresh = True
        self._closed = False

    def word(self, text: str, comments: Collection[Comment] = ()) -> None:
        """Write a word after the gap that was asked for."""
        if text != ",":
            self.settle()
        # At the start of a line such a word would open a statement, whatever brackets
        # are open.
        soft = self._gap == "\n" and self.depth and not self._closed
        if soft and text in OPENERS and not self._fresh:
            self._gap = "" if self._line.endswith(("(", "[")) else " "
        if self._gap == "\n":
            self._end_line()
        elif not self._fresh:
            self._line += self._gap
        self._gap = ""
        self._line += text
        self._fresh = False
        self.waiting += comments

    def space(self) -> None:
        """Leave a space before the next word, unless a line begins there."""
        if self._gap != "\n":
            self._gap = " "

    def newline(self) -> None:
        """Begin a line with the next word."""
        if not self._fresh:
            self._gap = "\n"

    def settle(self) -> None:
        """Write waiting comments, if brackets are open."""
        if not self.depth:
            return
        for comment in self.waiting:
            if comment.own_line or self._closed or self._fresh:
                if not self._fresh:
                    self._end_line()
                self._line += comment.text
            else:
                self._line += f"  {comment.text}"
            self._gap = "\n"
            self._fresh = False
            self._closed = True
        self.waiting.clear()

    def finish(self) -> Broken:
        """All lines."""
        return Broken((*self._lines, self._line), tuple(self.waiting))

    def _end_line(self) -> None:
        self._lines.append(self._line)
        self._line = " " * self.indent
        self._gap = ""
        self._fresh = True
        self._closed = False


def _content(writer: _Writer, content: Sequence, suffix: int) -> None:
    """Write what stands in open brackets, `suffix` characters before the line's end."""
    long = writer.indent + len(flat(content)) + suffix > WIDTH
    if Gap.BREAK not in content or not (long or has_comments(content)):
        _segment(writer, content, suffix)
        return
    segments: list[list[Piece]] = [[]]
    for piece in content:
        if piece is Gap.BREAK:
            segments.append([])
        else:
            segments[-1].append(piece)
    for segment in segments:
        writer.newline()
        _segment(writer, tuple(segment), suffix)


def _segment(writer: _Writer, content: Sequence, suffix: int) -> None:
    """Write a line of words; brackets are opened from the last to the first, until
    everything fits."""
    outermost = not writer.depth
    waiting = outermost and bool(writer.waiting)
    opened = _forced(content, outermost=outermost, waiting=waiting)
    closed = [
        place
        for place, piece in enumerate(content)
        if isinstance(piece, Brackets) and place not in opened
    ]
    while closed and not _fits(content, opened, writer.indent, suffix):
        opened.add(closed.pop())
    for place, piece in enumerate(content):
        match piece:
            case Word(text, comments):
                writer.word(text, comments)
            case Gap():
                writer.space()
            case Brackets():
                _brackets(writer, piece, opened=place in opened)


def _brackets(writer: _Writer, brackets: Brackets, *, opened: bool) -> None:
    shown = opened or not brackets.optional
    if shown and brackets.opening:
        writer.word(brackets.opening)
    writer.depth += shown
    if opened:
        writer.indent += INDENT
    for place, item in enumerate(brackets.items):
        if opened:
            writer.newline()
            _content(writer, item, int(brackets.listed))
        else:
            _segment(writer, item, 0)
        if brackets.listed and (opened or place + 1 < len(brackets.items)):
            writer.word(",")
            writer.space()
    if opened:
        writer.settle()
        writer.indent -= INDENT
        writer.newline()
    if shown and brackets.closing:
        writer.word(brackets.closing)
    writer.depth -= shown


def _forced(content: Sequence, *, outermost: bool, waiting: bool) -> set[int]:
    """The brackets that comments have to stand in."""
    opened = set()
    for place, piece in enumerate(content):
        match piece:
            case Word():
                waiting = bool(piece.comments) or (waiting and outermost)
            case Brackets():
                inner = (outermost or not piece.opening) and waiting
                if inner or has_comments((piece,)):
                    opened.add(place)
                    waiting = False
    return opened


def _fits(content: Sequence, opened: set[int], indent: int, suffix: int) -> bool:
    """Whether the lines outside of opened brackets are short enough."""
    length = indent
    for place, piece in enumerate(content):
        if isinstance(piece, Brackets) and place in opened:
            if length + len(piece.opening) > WIDTH:
                return False
            length = indent + len(piece.closing)
        else:
            length += len(flat((piece,)))
    return length + suffix <= WIDTH
