"""Diagnostics that several parts of name resolution make."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax.model import Name
from dynaflow_dsl.syntax.words import KEPT, RESERVED

MAX_CHOICES = 5


def unknown_name(
    kind: str, name: str, span: Span, choices: Iterable[str], declare: str = ""
) -> Diagnostic:
    """For a name that stands for nothing; `kind` is what was looked for.

    `declare` is a statement that would give it a meaning: the way out where no name is
    like it.
    """
    known = tuple(choices)
    helps = suggestions(name, known)
    if declare and not _similar(name, known):
        helps = (f"declare it: {declare}", *helps)
    return Diagnostic(
        "DFS102", f"there is no {kind} '{name}'", Label(span, "unknown"), helps=helps
    )


def suggestions(name: str, choices: Iterable[str]) -> tuple[str, ...]:
    """The most similar of the names that exist, else some of them."""
    known = sorted(set(choices))
    if close := _similar(name, known):
        return (f"did you mean '{close}'?",)
    if not known:
        return ()
    listed = ", ".join(known[:MAX_CHOICES])
    more = ", ..." if len(known) > MAX_CHOICES else ""
    return (f"known here: {listed}{more}",)


def _similar(name: str, known: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def given_twice(what: str, again: Span, first: Span) -> Diagnostic:
    """For what may be said once."""
    return Diagnostic(
        "DFS107",
        f"{what} is given twice",
        Label(again, "given again"),
        (Label(first, "first given here"),),
    )


class Names:
    """The names of one schedule: parameters, streams, the split's index, the iteration,
    parts. Those at the top of a file are a space of their own.

    They share one space, so that a name means one thing wherever it is read.
    """

    def __init__(self, found: list[Diagnostic]) -> None:
        self.found = found
        self.spans: dict[str, tuple[str, Span]] = {}

    def declare(self, kind: str, name: Name) -> bool:
        """Take a name; whether it was free and allowed."""
        if name.text in RESERVED:
            self.found.append(_reserved(name))
            return False
        if name.text in self.spans:
            other, first = self.spans[name.text]
            what = f"{kind} '{name.text}'"
            if other == kind:
                self.found.append(given_twice(what, name.span, first))
            else:
                self.found.append(
                    Diagnostic(
                        "DFS107",
                        f"{what} has the name of a {other}",
                        Label(name.span, f"{kind} of the same name"),
                        (Label(first, f"{other} of this name"),),
                        helps=("give one of them another name",),
                    )
                )
            return False
        self.spans[name.text] = (kind, name.span)
        return True


def _reserved(name: Name) -> Diagnostic:
    why = "kept for a later edition" if name.text in KEPT else "a word of the language"
    return Diagnostic(
        "DFS101",
        f"'{name.text}' cannot be a name here",
        Label(name.span, why),
        helps=("choose another name",),
    )
