"""What the abstract machine's memory is made of, and who touched it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.source import Span


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """The `time`-th thing that a stream does, with its place in the file.

    `layer` is its iteration, None where there is none.
    """

    stream: str
    time: int
    label: str
    span: Span | None
    layer: int | None = None


@dataclass(slots=True, eq=False)
class Row:
    """Rows that a step writes: the value, and the piece of it, that they hold, who
    wrote it, and who has read it since."""

    value: str = ""
    piece: int | None = None
    writer: Access | None = None
    readers: dict[str, Access] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Storage:
    """Memory made by one access and read by others; of each stream the last reader.

    What is made for others to write has `rows`, one for each piece or one in all, which
    they write; they count among the readers.
    """

    made: Access
    readers: dict[str, Access] = field(default_factory=dict)
    from_outside: bool = False
    rows: tuple[Row, ...] = ()

    def at(self, piece: int | None) -> tuple[Row, ...]:
        """The rows of one piece, or all of them."""
        if piece is None:
            return self.rows
        apart = len(self.rows) > 1 and piece >= 0
        return self.rows[piece : piece + 1] if apart else ()

    def makers(self, piece: int | None) -> list[Access]:
        """Who has made what is in these rows, of all of it where it has none."""
        if not self.rows:
            return [self.made]
        return [row.writer for row in self.at(piece) if row.writer is not None]

    def value(self, piece: int | None) -> str:
        """The value of which all rows that are meant hold their own; empty if none."""
        rows = self.at(piece)
        values = {row.value for row in rows}
        first = 0 if piece is None else piece
        whole = all(row.piece == k for k, row in enumerate(rows, first))
        return values.pop() if len(values) == 1 and whole else ""


class Content(NamedTuple):
    """What a variable holds: a value of the graph, all of it (None) or one piece."""

    value: str
    piece: int | None
    storage: Storage
