"""`parts NAME:` and `use NAME`: a cutting that several schedules share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve.findings import Names, given_twice, unknown_name
from dynaflow_dsl.resolve.selectors import (
    misplaced_weights,
    names_weights,
    resolve_selector,
)
from dynaflow_dsl.resolve.values import flag, options_by_name
from dynaflow_dsl.resolve.walk import used_at
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that a file can use: its own, and those it imports.

    `sound` are those without mistakes, `broken` the names about which something was
    said already. `schedules` are the names that stand for schedules, `unread` those of
    imports that brought nothing.
    """

    sound: Mapping[str, syntax.PartGroup]
    broken: frozenset[str]
    schedules: Mapping[str, syntax.Name]
    unread: frozenset[str] = frozenset()

    def expand(
        self, body: Iterable[syntax.Placement], found: list[Diagnostic]
    ) -> tuple[list[syntax.Placement], bool]:
        """A block with each `use` replaced by the parts of its group.

        Whether all parts are known comes second: not when a group is.
        """
        expanded: list[syntax.Placement] = []
        whole = True
        first: dict[str, syntax.Use] = {}
        for statement in body:
            match statement:
                case syntax.Use(name, span):
                    earlier = first.setdefault(name.text, statement)
                    if earlier is not statement:
                        what = f"'use {name.text}'"
                        found.append(given_twice(what, span, earlier.span))
                        continue
                    group = self._group(name, found)
                    if group is None:
                        whole = False
                    else:
                        expanded += used_at(group.parts, span)
                case _:
                    expanded.append(statement)
        return expanded, whole

    def used_by(self, tree: syntax.Schedule) -> list[syntax.PartGroup]:
        """The groups that a schedule uses, anywhere in it."""
        names = []
        for statement in tree.statements:
            inside = statement.body if isinstance(statement, syntax.Each) else ()
            for each in (statement, *inside):
                if isinstance(each, syntax.Use):
                    names.append(each.name.text)
        return [self.sound[name] for name in names if name in self.sound]

    def _group(
        self, name: syntax.Name, found: list[Diagnostic]
    ) -> syntax.PartGroup | None:
        if name.text in self.sound:
            return self.sound[name.text]
        if name.text in self.broken:
            return None
        if name.text in self.schedules:
            found.append(
                Diagnostic(
                    "DFS108",
                    f"'use' takes a group of parts, and '{name.text}' is a schedule",
                    Label(name.span, "not a group"),
                    (Label(self.schedules[name.text].span, "the schedule"),),
                )
            )
            return None
        choices = (*self.sound, *(self.broken - self.unread))
        declare = f"'parts {name.text}:', or import it from the file that has it"
        kind = "group of parts"
        found.append(unknown_name(kind, name.text, name.span, choices, declare))
        return None


def check_group(group: syntax.PartGroup) -> Iterator[Diagnostic]:
    """What is wrong with a group wherever it is used.

    Streams and the parts it does not declare are looked up where it is used.
    """
    found: list[Diagnostic] = []
    names = Names(found)
    for part in group.parts:
        names.declare("part", part.name)
        check_part(part, found)
        resolve_selector(part.selector, None, found)
    yield from found


def check_part(part: syntax.Part, found: list[Diagnostic]) -> Span | None:
    """Look at the options of a part; the one that states `rowwise = true`, or None.

    A kernel is refused for what brings weights.
    """
    if part.via is not None and names_weights(part.selector):
        label = "no kernel can stand for what brings weights"
        found.append(misplaced_weights(label, part.via.span))
    options = options_by_name(part.options, "part", ["rowwise"], found)
    option = options.get("rowwise")
    return option.span if option is not None and flag(option, found) else None
