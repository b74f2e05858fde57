"""Two outlines to the changes between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from dynaflow_dsl.comparison.model import (
    Change,
    Comparison,
    FileOutline,
    Item,
    Outline,
    Scope,
    Timeline,
    Window,
)
from dynaflow_dsl.comparison.outline import Groups, outline
from dynaflow_dsl.comparison.parts import part_changes, renamed_parts
from dynaflow_dsl.comparison.windows import window_changes
from dynaflow_dsl.syntax import SyntaxTree

# Kinds that are statements of their own, and are said as such.
_STATEMENTS = ("stream", "split", "capture")

_NAME = re.compile(r"(?<![\w.\[])(?!prev\b|after\b)\w+|(?<=prev\.)\w+")


def compare(
    old: SyntaxTree | None,
    new: SyntaxTree | None,
    old_groups: Groups,
    new_groups: Groups,
    *,
    same_digest: bool = False,
) -> Comparison:
    """What changes from one file to another.

    None stands for a file that does not exist. The groups are those that each file
    imports. `same_digest` says that the schedules of both files were resolved and mean
    the same: what then differs in them is only written otherwise.
    """
    before, after = outline(old, old_groups), outline(new, new_groups)
    found = _by_declaration(dict.fromkeys(_file_changes(before, after)))
    if same_digest:
        found = [
            replace(change, kind="written")
            if change.where.startswith("schedule ")
            else change
            for change in found
        ]
    texts = [tree.source.text if tree is not None else None for tree in (old, new)]
    return Comparison(
        old.source.name if old is not None else None,
        new.source.name if new is not None else None,
        tuple(found),
        identical=texts[0] == texts[1],
        same_meaning=all(change.kind == "written" for change in found),
    )


def _by_declaration(changes: Iterable[Change]) -> list[Change]:
    """Changes of one declaration together, in the order of the first of each."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.where, []).append(change)
    return [change for group in groups.values() for change in group]


def _file_changes(old: FileOutline, new: FileOutline) -> Iterator[Change]:
    yield from _head_changes(old.head, new.head)
    before, after = dict(old.declarations), dict(new.declarations)
    renamed = _renamed(before, after)
    for one, other in renamed:
        sentence = f"{one.kind} `{one.name}` is called `{other.name}` now"
        yield Change("renamed", other.title, sentence, one.span, other.span)
        yield from _outline_changes(one, other)
        del before[one.kind, one.name], after[other.kind, other.name]
    for key, one in before.items():
        if key not in after:
            yield _declaration("removed", one)
    for key, other in after.items():
        if key in before:
            yield from _outline_changes(before[key], other)
        else:
            yield _declaration("added", other)


def _head_changes(old: Outline, new: Outline) -> Iterator[Change]:
    one = old.named.get("model", {}).get("model")
    other = new.named.get("model", {}).get("model")
    if one is not None and other is not None:
        if one.text != other.text:
            sentence = f"the model is `{other.text}` now, was `{one.text}`"
            yield Change("changed", "", sentence, one.span, other.span)
        before = old.named.get("argument", {})
        after = new.named.get("argument", {})
        yield from _item_changes("argument", before, after, "", "of the model")
    elif other is not None:
        sentence = f"the file names a model now, `{other.text}`"
        yield Change("added", "", sentence, None, other.span)
    elif one is not None:
        yield Change("removed", "", f"the file no longer names `{one.text}`", one.span)


def _renamed(
    old: Mapping[tuple[str, str], Outline], new: Mapping[tuple[str, str], Outline]
) -> list[tuple[Outline, Outline]]:
    """Declarations that went and came with the same content, one of each."""
    pairs = []
    taken: set[str] = set()
    for key, one in old.items():
        if key in new or one.kind == "from":
            continue
        for other_key, other in new.items():
            alike = other.kind == one.kind and other_key not in old
            if not alike or other.title in taken:
                continue
            if not list(_outline_changes(one, other)):
                pairs.append((one, other))
                taken.add(other.title)
                break
    return pairs


def _declaration(kind: str, each: Outline) -> Change:
    if each.kind == "from":
        listed = ", ".join(f"`{name}`" for name in each.named["name"])
        verb = "no longer imports" if kind == "removed" else "now imports"
        sentence = f"the file {verb} {listed} from `{each.name}`"
        if kind == "removed":
            return Change("written", "", sentence, each.span)
        return Change("written", "", sentence, None, each.span)
    sentence = f"{each.kind} `{each.name}` was {kind}"
    if kind == "removed":
        return Change("removed", each.title, sentence, each.span)
    return Change("added", each.title, sentence, None, each.span)


def _outline_changes(old: Outline, new: Outline) -> Iterator[Change]:
    where = new.title
    for kind in dict.fromkeys([*old.named, *new.named]):
        before, after = old.named.get(kind, {}), new.named.get(kind, {})
        match kind:
            case "name":
                yield from _import_changes(before, after, new.name)
            case "split index":
                yield from _index_changes(before, after, where)
            case _:
                yield from _item_changes(kind, before, after, where)
    yield from _condition_changes(old.conditions, new.conditions, where)
    yield from _scopes_changes(old.scopes, new.scopes, where)


def _import_changes(
    old: Mapping[str, Item], new: Mapping[str, Item], file: str
) -> Iterator[Change]:
    for name, item in old.items():
        if name not in new:
            sentence = f"`{name}` is no longer imported from `{file}`"
            yield Change("written", "", sentence, item.span)
    for name, item in new.items():
        if name not in old:
            sentence = f"`{name}` is now imported from `{file}`"
            yield Change("written", "", sentence, None, item.span)


def _index_changes(
    old: Mapping[str, Item], new: Mapping[str, Item], where: str
) -> Iterator[Change]:
    for dimension, one in old.items():
        other = new.get(dimension)
        if other is not None and other.text != one.text:
            sentence = f"the split's index is called `{other.text}` now"
            sentence += f", was `{one.text}`"
            yield Change("renamed", where, sentence, one.span, other.span)


def _item_changes(
    kind: str,
    old: Mapping[str, Item],
    new: Mapping[str, Item],
    where: str,
    owner: str = "",
) -> Iterator[Change]:
    gone = [name for name in old if name not in new]
    came = [name for name in new if name not in old]
    if kind in _STATEMENTS and len(gone) == len(came) == 1:
        one, other = old[gone[0]], new[came[0]]
        if kind == "split" or one.text == other.text:
            now, was = (f"`{kind} {_said(kind, each)}`" for each in (other, one))
            yield Change("changed", where, f"{now} was {was}", one.span, other.span)
            gone, came = [], []
    label = f"{kind} {owner}".rstrip()
    if kind == "choice" and len(gone) == len(came) == 1:
        one, other = old[gone[0]], new[came[0]]
        if one.text == other.text:
            now, was = _said(kind, other, came[0]), _said(kind, one, gone[0])
            sentence = f"{label} `{now}` was `{was}`"
            yield Change("changed", where, sentence, one.span, other.span)
            gone, came = [], []
    for name in gone:
        said = f"{label} `{_said(kind, old[name], name)}`"
        yield Change("removed", where, f"{said} was removed", old[name].span)
    for name, other in new.items():
        if name in came:
            said = f"{label} `{_said(kind, other, name)}`"
            yield Change("added", where, f"{said} was added", None, other.span)
        elif name in old and old[name].text != other.text:
            one = old[name]
            if kind in _STATEMENTS:
                now, was = (f"`{kind} {_said(kind, each)}`" for each in (other, one))
                sentence = f"{now} was {was}"
            else:
                subject = f"{label} `{name}`" if name else label
                sentence = f"{subject} is `{other.text}` now, was `{one.text}`"
            yield Change("changed", where, sentence, one.span, other.span)
    if kind == "choice" and not _same_order(old, new):
        first = next(iter(new.values()))
        sentence = "the choices stand in another order"
        yield Change("moved", where, sentence, None, first.span)


def _same_order(old: Iterable[str], new: Iterable[str]) -> bool:
    """Whether what is in both stands in one order."""
    before, after = list(old), list(new)
    return [x for x in before if x in after] == [x for x in after if x in before]


def _said(kind: str, item: Item, name: str = "") -> str:
    """An item as its statement says it, without the keyword."""
    name = name or item.name
    match kind:
        case "parameter" | "argument" | "option":
            return f"{name} = {item.text}"
        case "choice":
            return f"{name}: {item.text}"
    return f"{name} {item.text}".strip()


def _condition_changes(
    old: Sequence[Item], new: Sequence[Item], where: str
) -> Iterator[Change]:
    """Requirements: those that went and came at the same place are one change."""
    before, after = [item.text for item in old], [item.text for item in new]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, end, j, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        gone, came = list(old[i:end]), list(new[j:stop])
        for one, other in zip(gone, came, strict=False):
            sentence = f"`{other.text}` was `{one.text}`"
            yield Change("changed", where, sentence, one.span, other.span)
        for one in gone[len(came) :]:
            yield Change("removed", where, f"`{one.text}` was removed", one.span)
        for other in came[len(gone) :]:
            yield Change("added", where, f"`{other.text}` was added", None, other.span)


def _scopes_changes(
    old: Sequence[Scope], new: Sequence[Scope], where: str
) -> Iterator[Change]:
    """Scopes are the same by name, else by their place among those that are left."""
    rest = list(old)
    pairs: list[tuple[Scope | None, Scope]] = []
    for scope in new:
        same = next((each for each in rest if each.name == scope.name), None)
        if same is not None:
            rest.remove(same)
        pairs.append((same, scope))
    for place, (one, other) in enumerate(pairs):
        if one is None and other.name and rest and rest[0].name:
            one = rest.pop(0)
            pairs[place] = one, other
        if one is None:
            sentence = f"{_called(other)} was added"
            yield Change("added", where, sentence, None, other.span)
        else:
            yield from _scope_changes(one, other, where)
    for one in rest:
        yield Change("removed", where, f"{_called(one)} was removed", one.span)
    kept = [(old.index(one), other) for one, other in pairs if one is not None]
    if kept != sorted(kept, key=lambda each: each[0]):
        listed = ", then ".join(_called(other) for _, other in kept)
        sentence = f"the sections run in another order: {listed}"
        yield Change("moved", where, sentence, None, kept[0][1].span)


def _called(scope: Scope) -> str:
    if not scope.name:
        return "what stands outside of any `each`"
    return f"`each {scope.name} {scope.header}`"


def _scope_changes(old: Scope, new: Scope, where: str) -> Iterator[Change]:
    if old.header != new.header or old.name != new.name:
        was, now = (f"each {each.name} {each.header}" for each in (old, new))
        yield Change("changed", where, f"`{now}` was `{was}`", old.span, new.span)
    names = renamed_parts(old.parts, new.parts)
    yield from part_changes(old.parts, new.parts, names, where)
    yield from _condition_changes(old.others, new.others, where)
    yield from _timeline_changes(old.timelines, new.timelines, names, where)


def _timeline_changes(
    old: Sequence[Timeline],
    new: Sequence[Timeline],
    names: Mapping[str, str],
    where: str,
) -> Iterator[Change]:
    for one, other in zip(old, new, strict=False):
        if one.kind != other.kind:
            sentence = f"the timeline is {_article(other)} now, was {_article(one)}"
            yield Change("changed", where, sentence, one.span, other.span)
            continue
        if one.by != other.by:
            sentence = f"the stagger goes by {other.by} now, was by {one.by}"
            yield Change("changed", where, sentence, one.span, other.span)
        word = "window" if other.kind == "order" else "stage"
        before = [_with_names(window, names) for window in one.windows]
        yield from window_changes(before, other.windows, where, word)
    for one in old[len(new) :]:
        sentence = f"{_article(one)} was removed"
        yield Change("removed", where, sentence, one.span)
    for other in new[len(old) :]:
        sentence = f"{_article(other)} was added"
        yield Change("added", where, sentence, None, other.span)


def _article(timeline: Timeline) -> str:
    if timeline.kind == "order":
        return "an `order`"
    return f"a `stagger` by {timeline.by}"


def _with_names(window: Window, names: Mapping[str, str]) -> Window:
    """A window of the old file with parts as the new file calls them."""
    if not names:
        return window

    def now(step: str) -> str:
        return _NAME.sub(lambda m: names.get(m[0], m[0]), step)

    return replace(window, runs=tuple(tuple(map(now, run)) for run in window.runs))
