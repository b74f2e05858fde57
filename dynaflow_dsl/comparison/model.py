"""Two files as what they declare, and the changes between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dynaflow_dsl.source import Span

# What a change does to the meaning. `written` ones only say the same in other words.
Kind: TypeAlias = Literal["added", "removed", "changed", "moved", "renamed", "written"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change as a sentence, in which words of a schedule stand in backticks.

    `where` is the declaration it is in, such as `schedule halves`; empty for the file.
    `before` and `after` are the places, where the file has one.
    """

    kind: Kind
    where: str
    sentence: str
    before: Span | None = None
    after: Span | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What follows from the changes for a schedule; `where` is as in `Change`."""

    where: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All changes from one file to another, in the order of the files.

    A name is None when there is no such file. `identical` says that the texts are equal
    to the last character, `same_meaning` that no change has an effect on what the
    schedules do. `effects` are what follows for the plans of the graph in `snapshot`.
    """

    old: str | None
    new: str | None
    changes: tuple[Change, ...]
    identical: bool
    same_meaning: bool
    effects: tuple[Effect, ...] = ()
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """Anything with a name and a text in the words of the language."""

    name: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Part:
    """A part; `group` is the group of parts that a `use` took it from."""

    name: str
    selector: str
    on: str
    via: str
    options: str
    span: Span
    group: str = ""

    @property
    def content(self) -> tuple[str, ...]:
        """All but its name."""
        return self.selector, self.on, self.via, self.options


@dataclass(frozen=True, slots=True)
class Window:
    """A line of a timeline: its runs as texts, each a list of steps."""

    runs: tuple[tuple[str, ...], ...]
    span: Span

    @property
    def key(self) -> tuple[tuple[str, ...], ...]:
        """The runs without their order, which only says what is issued first."""
        return tuple(sorted(self.runs))

    @property
    def steps(self) -> tuple[str, ...]:
        """All steps."""
        return tuple(step for run in self.runs for step in run)

    @property
    def text(self) -> str:
        """The window as it is written on one line."""
        return " | ".join(", ".join(run) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Timeline:
    """An `order`, or a `stagger` by so many stages."""

    kind: Literal["order", "stagger"]
    by: int
    windows: tuple[Window, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Scope:
    """Where parts are placed: an `each`, the schedule itself, or a group of parts.

    `header` is empty for the last two. `others` are statements of further kinds.
    """

    name: str
    header: str
    parts: Mapping[str, Part]
    timelines: tuple[Timeline, ...]
    span: Span
    others: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    """One declaration: its statements by kind.

    `named` are those that exist once under a name, by kind: parameters, streams,
    captures and so on; `conditions` are those that have none.
    """

    kind: str
    name: str
    span: Span
    named: Mapping[str, Mapping[str, Item]] = field(default_factory=dict)
    conditions: tuple[Item, ...] = ()
    scopes: tuple[Scope, ...] = ()

    @property
    def title(self) -> str:
        """The declaration as its header line begins."""
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class FileOutline:
    """All declarations of a file by kind and name; `head` is the `model` line."""

    head: Outline
    declarations: Mapping[tuple[str, str], Outline]
