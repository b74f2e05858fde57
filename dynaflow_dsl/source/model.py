"""A text the user wrote, and places in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_TEXT_OR_COMMENT = re.compile(r'(?P<text>"[^"\n]*")|#[^\n]*')


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One `.dfs` file: the name the user gave it, and its text."""

    name: str
    text: str = field(repr=False)
    line_starts: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Only "\n" ends a line, as in the grammar; str.splitlines knows ten more.
        starts = (offset + 1 for offset, c in enumerate(self.text) if c == "\n")
        object.__setattr__(self, "line_starts", (0, *starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset, both counted from one."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line counted from one, without its line break."""
        starts = self.line_starts
        if not 1 <= number <= len(starts):
            return ""
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` (exclusive) of a source.

    `used_at` is the statement that brought the text to where it counts, for text that
    stands elsewhere: the `use` of a group of parts.
    """

    source: Source
    start: int
    end: int
    used_at: Span | None = None

    @property
    def line(self) -> int:
        """Line of the first character, counted from one."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """Column of the first character, counted from one."""
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        """The characters themselves."""
        return self.source.text[self.start : self.end]

    @property
    def phrase(self) -> str:
        """The text on one line, without comments."""
        kept = _TEXT_OR_COMMENT.sub(lambda found: found["text"] or "", self.text)
        return " ".join(kept.split())

    @property
    def uses(self) -> tuple[Span, ...]:
        """The statements that brought the text here, the nearest first."""
        if self.used_at is None:
            return ()
        return (self.used_at, *self.used_at.uses)

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"
