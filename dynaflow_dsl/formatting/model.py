"""What is printed: statements as words, gaps and brackets, with comments at words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

# The longest line that layout makes. Module paths are long words, and a part should
# stay one line that reads as a sentence.
WIDTH = 100
INDENT = 4

# These come and go with the layout, so no comment is tied to one.
PUNCTUATION = frozenset("(),|")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment inside brackets; `own_line` when nothing stands before it."""

    text: str
    own_line: bool


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the language, and the comments between it and the next."""

    text: str
    comments: tuple[Comment, ...] = ()


class Gap(Enum):
    """What stands between two words: a space, or one that may become a line break."""

    SPACE = 1
    BREAK = 2


@dataclass(frozen=True, slots=True)
class Brackets:
    """Brackets whose content may move to lines of its own.

    `optional` ones are only printed then. Several items, and those of a `listed` one,
    have commas between them.
    """

    opening: str
    items: tuple[Sequence, ...]
    closing: str
    optional: bool = False
    listed: bool = False


Piece: TypeAlias = Word | Gap | Brackets
Sequence: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One statement's line.

    `cells` are its columns in a table with its neighbours of the same `shape`, joined
    by `separator`; a row without a shape stands in no table. `doc` is the comment block
    above a schedule.
    """

    level: int
    content: Sequence
    shape: tuple[object, ...] = ()
    cells: tuple[str, ...] = ()
    separator: str = " "
    doc: str | None = None


def flat(content: Sequence) -> str:
    """A sequence on one line, without its comments."""
    return "".join(map(_flat, content))


def _flat(piece: Piece) -> str:
    match piece:
        case Word(text):
            return text
        case Gap():
            return " "
        case Brackets():
            inside = ", ".join(map(flat, piece.items))
            return inside if piece.optional else piece.opening + inside + piece.closing


def has_comments(content: Sequence) -> bool:
    """Whether a comment stands anywhere in a sequence."""
    return any(word.comments for word in words(content))


def words(content: Sequence) -> Iterator[Word]:
    """The words of a sequence that comments can be tied to, in order.

    Brackets that hold a list count when they are square.
    """
    for piece in content:
        match piece:
            case Word(text) if text not in PUNCTUATION:
                yield piece
            case Brackets():
                for item in piece.items:
                    yield from words(item)


def attach(content: Sequence, comments: Iterable[tuple[Comment, ...]]) -> Sequence:
    """The same sequence with the next comments tied to each word."""
    rest = iter(comments)

    def add(piece: Piece) -> Piece:
        match piece:
            case Word(text) if text not in PUNCTUATION:
                return Word(text, next(rest))
            case Brackets():
                items = tuple(tuple(map(add, item)) for item in piece.items)
                return Brackets(
                    piece.opening, items, piece.closing, piece.optional, piece.listed
                )
        return piece

    return tuple(map(add, content))
