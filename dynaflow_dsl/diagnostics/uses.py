"""The same finding about text that is used in several places, as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from dynaflow_dsl.diagnostics.model import Diagnostic, Label

Key: TypeAlias = tuple[object, ...]


def once(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Diagnostics that differ in where their text is used as one, with all of the uses.

    A schedule that a `select` names with several arguments, or a group of parts in
    several schedules, is wrong in one place. Where it is wrong by itself as well, no
    use is to blame.
    """
    found: dict[Key, Diagnostic] = {}
    for each in diagnostics:
        key = _key(each)
        first = found.setdefault(key, each)
        if first is each or not _uses(first):
            continue
        if not (uses := _uses(each)):
            found[key] = each
            continue
        more = [use for use in uses if use not in first.others]
        found[key] = replace(first, secondary=(*first.secondary, *more))
    return tuple(found.values())


def _uses(diagnostic: Diagnostic) -> tuple[Label, ...]:
    return diagnostic.others[len(diagnostic.secondary) :]


def _key(diagnostic: Diagnostic) -> Key:
    primary = diagnostic.primary
    if primary is None:
        # Said of no place in a file: each is about something else.
        return (id(diagnostic),)
    return (
        diagnostic.code,
        diagnostic.severity,
        diagnostic.message,
        _in_itself(primary),
        tuple(map(_in_itself, diagnostic.secondary)),
        diagnostic.notes,
        diagnostic.helps,
        diagnostic.about,
    )


def _in_itself(label: Label) -> Label:
    """A place without where its text is used."""
    return replace(label, span=replace(label.span, used_at=None))
