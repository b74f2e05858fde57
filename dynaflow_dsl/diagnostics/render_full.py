"""The form for people: message, excerpt with marked places, ways out."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dynaflow_dsl.diagnostics.codes import has_long_page
from dynaflow_dsl.diagnostics.model import Diagnostic, Label
from dynaflow_dsl.source import Source

TAB_WIDTH = 4

# Longer lines are shown in part, around what is marked.
MAX_WIDTH = 120
_CUT = "..."


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked stretch of one displayed line, in columns counted from zero."""

    start: int
    end: int
    text: str
    primary: bool


def render_full(diagnostic: Diagnostic) -> str:
    """One diagnostic over several lines, without a line break at the end."""
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"]
    labels = _labels(diagnostic)
    last = max((label.span.line for label, _ in labels), default=0)
    margin = " " * len(str(last))
    if diagnostic.primary is not None:
        home = diagnostic.primary.span.source
        sources = dict.fromkeys([home, *(label.span.source for label, _ in labels)])
        for source in sources:
            here = [pair for pair in labels if pair[0].span.source is source]
            arrow = "-->" if source is home else ":::"
            lines.append(f"{margin}{arrow} {here[0][0].span}")
            lines.append(f"{margin} |")
            lines += _excerpt(source, here, len(margin))
    remarks = list(_remarks(diagnostic))
    if remarks and diagnostic.primary is not None:
        lines.append(f"{margin} |")
    for kind, text in remarks:
        first, *others = text.splitlines() or [""]
        lines.append(f"{margin} = {kind}: {first}")
        lines += [f"{margin}   {' ' * len(kind)}  {other}" for other in others]
    return "\n".join(line.rstrip() for line in lines)


def _labels(diagnostic: Diagnostic) -> list[tuple[Label, bool]]:
    if diagnostic.primary is None:
        return []
    secondary = [(label, False) for label in diagnostic.others]
    return [(diagnostic.primary, True), *secondary]


def _remarks(diagnostic: Diagnostic) -> Iterator[tuple[str, str]]:
    for note in diagnostic.notes:
        yield "note", note
    for text in diagnostic.helps:
        yield "help", text
    if has_long_page(diagnostic.code):
        yield "explain", f"dfsc explain {diagnostic.code}"


def _excerpt(
    source: Source, labels: Sequence[tuple[Label, bool]], width: int
) -> Iterator[str]:
    """The marked lines of one source, in order, with what is skipped shown as dots."""
    numbers = sorted({label.span.line for label, _ in labels})
    before: int | None = None
    for number in numbers:
        if before is not None and number == before + 2:
            text, _ = _display(source.line(number - 1), ())
            yield f"{number - 1:<{width}} | {text}"
        elif before is not None and number > before + 2:
            yield _CUT
        here = [pair for pair in labels if pair[0].span.line == number]
        text, marks = _display(source.line(number), [_place(*pair) for pair in here])
        yield f"{number:<{width}} | {text}"
        for line in _underline(marks):
            yield f"{'':{width}} | {line}"
        before = number


def _place(label: Label, primary: bool) -> Mark:
    """A label's place in characters of its first line; later lines are not marked."""
    start = label.span.column - 1
    length = len(label.span.source.line(label.span.line))
    end = min(start + label.span.end - label.span.start, max(length, start))
    return Mark(start, end, label.text, primary)


def _display(line: str, places: Iterable[Mark]) -> tuple[str, list[Mark]]:
    """A line as it is printed, and the places in it as columns of the print."""
    line, places = _clip(line, list(places))
    shown: list[str] = []
    columns = [0]
    for character in line:
        text = _printable(character)
        shown.append(text)
        columns.append(columns[-1] + _width(text))
    marks = []
    for place in places:
        start, end = (
            columns[min(place.start, len(line))],
            columns[min(place.end, len(line))],
        )
        marks.append(Mark(start, max(end, start + 1), place.text, place.primary))
    return "".join(shown), marks


def _clip(text: str, marks: list[Mark]) -> tuple[str, list[Mark]]:
    """Keep a stretch around the marks when a line is too long to print."""
    if len(text) <= MAX_WIDTH:
        return text, marks
    focus = next((mark for mark in marks if mark.primary), marks[0] if marks else None)
    first = max(focus.start - MAX_WIDTH // 2, 0) if focus else 0
    last = first + MAX_WIDTH
    head, tail = _CUT if first else "", _CUT if last < len(text) else ""
    shift = len(head) - first
    room = len(head) + last - first
    clipped = [
        Mark(
            min(max(mark.start + shift, 0), room),
            min(max(mark.end + shift, 1), room + 1),
            mark.text,
            mark.primary,
        )
        for mark in marks
    ]
    return head + text[first:last] + tail, clipped


def _printable(character: str) -> str:
    if character == "\t":
        return " " * TAB_WIDTH
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return "\ufffd"
    return character


def _width(text: str) -> int:
    """How many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(
        2
        if unicodedata.east_asian_width(character) in "WF"
        else 0
        if unicodedata.combining(character)
        else 1
        for character in text
    )


def _underline(marks: Sequence[Mark]) -> Iterator[str]:
    """The lines below a line of text: the marks, and their texts.

    The text of the rightmost mark follows it; the others hang below theirs, from right
    to left, so that no text crosses another.
    """
    ordered = sorted(marks, key=lambda mark: (mark.start, mark.end, mark.primary))
    row: list[str] = []
    for mark in sorted(ordered, key=lambda mark: mark.primary):
        row += " " * (mark.end - len(row))
        sign = "^" if mark.primary else "-"
        row[mark.start : mark.end] = sign * (mark.end - mark.start)
    last = ordered[-1]
    inline = last.text and all(mark.end <= last.start for mark in ordered[:-1])
    yield "".join(row) + (f" {last.text}" if inline else "")
    hanging = [mark for mark in (ordered[:-1] if inline else ordered) if mark.text]
    if hanging:
        yield _bars(hanging)
    while hanging:
        mark = hanging.pop()
        yield (
            _bars([other for other in hanging if other.start < mark.start]).ljust(
                mark.start
            )
            + mark.text
        )


def _bars(marks: Sequence[Mark]) -> str:
    row = ""
    for mark in marks:
        if mark.start >= len(row):
            row = row.ljust(mark.start) + "|"
    return row
