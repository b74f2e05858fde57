"""Changes of the parts of one scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynaflow_dsl.comparison.model import Change, Part


def renamed_parts(old: Mapping[str, Part], new: Mapping[str, Part]) -> dict[str, str]:
    """New names by old ones, of parts that went and came with the same content."""
    came = {name: part for name, part in new.items() if name not in old}
    found = {}
    for name, part in old.items():
        if name in new:
            continue
        same = [other for other, each in came.items() if each.content == part.content]
        if same:
            found[name] = same[0]
            del came[same[0]]
    return found


def part_changes(
    old: Mapping[str, Part],
    new: Mapping[str, Part],
    renamed: Mapping[str, str],
    where: str,
) -> Iterator[Change]:
    """The changes from one set of parts to another.

    A part of a group changes in the group, once for all schedules that use it.
    """
    for name, part in old.items():
        if name in renamed:
            other = new[renamed[name]]
            sentence = f"part `{name}` is called `{other.name}` now"
            place = _place(part, other, where)
            yield Change("renamed", place, sentence, part.span, other.span)
        elif name not in new:
            sentence = f"part `{_said(part)}` was removed"
            yield Change("removed", _place(part, part, where), sentence, part.span)
    for name, part in new.items():
        if name in old:
            yield from _changes(old[name], part, where)
        elif name not in renamed.values():
            sentence = f"part `{_said(part)}` was added"
            yield Change("added", _place(part, part, where), sentence, None, part.span)
    if list(old) != list(new) and set(old) == set(new):
        first = next(iter(new.values()))
        sentence = "the parts are declared in another order"
        yield Change("written", _place(first, first, where), sentence, None, first.span)


def _changes(old: Part, new: Part, where: str) -> Iterator[Change]:
    place = _place(old, new, where)
    said = []
    if old.selector != new.selector:
        said.append(f"takes `{new.selector}` now, was `{old.selector}`")
    if old.on != new.on:
        said.append(f"runs on `{new.on}` now, was on `{old.on}`")
    if old.via != new.via:
        said.append(_optional("runs through", new.via, old.via))
    if old.options != new.options:
        said.append(_optional("has the options", new.options, old.options))
    for what in said:
        sentence = f"part `{new.name}` {what}"
        yield Change("changed", place, sentence, old.span, new.span)
    if not said and old.group != new.group:
        groups = f"`{new.group}`" if new.group else "this schedule itself"
        sentence = f"part `{new.name}` is declared by {groups} now"
        yield Change("written", where, sentence, old.span, new.span)


def _optional(verb: str, now: str, before: str) -> str:
    now = f"`{now}`" if now else "nothing"
    before = f"`{before}`" if before else "nothing"
    return f"{verb} {now} now, was {before}"


def _place(old: Part, new: Part, where: str) -> str:
    return f"parts {new.group}" if new.group and old.group == new.group else where


def _said(part: Part) -> str:
    words = [part.name, part.options]
    if part.on != "main":
        words.append(f"on {part.on}")
    if part.via:
        words.append(f"via {part.via}")
    return " ".join(word for word in [*words, f"= {part.selector}"] if word)
