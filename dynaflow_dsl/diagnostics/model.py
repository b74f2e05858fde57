"""What the compiler has to say, as data; rendering is elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from dynaflow_dsl.source import Span

T = TypeVar("T")


class Severity(StrEnum):
    """How much a diagnostic weighs: an error stops the compiler."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the user's file and what is the matter there."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: a code, a sentence that stands alone, places, and ways out.

    `primary` is None only where no text of the user's is at fault (a model that
    cannot be imported on the command line, for example). `about` is the file that
    such a finding is about, if there is one: a module is stale by its schedule.
    """

    code: str
    message: str
    primary: Label | None = None
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR
    about: str | None = None

    @property
    def others(self) -> tuple[Label, ...]:
        """The secondary places, and where the text at any of the places is used.

        Text that a `use` brought in is at fault only together with that `use`, and a
        stage only as its `stagger` places it.
        """
        if self.primary is None:
            return self.secondary
        places = (self.primary, *self.secondary)
        uses = dict.fromkeys(use for place in places for use in place.span.uses)
        return (*self.secondary, *(Label(use, _what_it_does(use)) for use in uses))


def _what_it_does(statement: Span) -> str:
    """What a statement does with text that it brings to another place."""
    word, *_ = statement.text.split()
    return "in this stagger" if word == "stagger" else "used here"


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """A stage's value beside what was found; no value means an error was found."""

    value: T | None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """True when there is a value and nothing found is an error."""
        return self.value is not None and not has_errors(self.diagnostics)

    def unwrap(self) -> T:
        """The value; raises DiagnosticError when there are errors."""
        if self.value is None or has_errors(self.diagnostics):
            raise DiagnosticError(self.diagnostics)
        return self.value


class DiagnosticError(Exception):
    """Carries diagnostics across the public Python API, and nowhere else.

    Its text is what a command would print of them, with places and ways out.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        # The renderers import what is defined here.
        from dynaflow_dsl.diagnostics.render import render
        from dynaflow_dsl.diagnostics.uses import once

        return render(once(self.diagnostics)).rstrip()


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of the diagnostics is an error."""
    return any(d.severity is Severity.ERROR for d in diagnostics)
