"""The sections of a schedule: parts, the streams they run on, and their timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.completeness import check_complete
from dynaflow_dsl.resolve.findings import Names, given_twice, unknown_name
from dynaflow_dsl.resolve.groups import Groups, check_part
from dynaflow_dsl.resolve.selectors import (
    check_selectors,
    misplaced_weights,
    names_weights,
    resolve_having,
    resolve_path,
    resolve_selector,
)
from dynaflow_dsl.resolve.timeline import (
    Timeline,
    references,
    unknown_part,
)
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class Content:
    """What stands in one section, groups written out.

    `whole` tells whether all of its groups are known. `place` is where its timeline
    stands among the statements of the schedule, and `span` what opens it.
    """

    each: syntax.Each | None
    parts: tuple[syntax.Part, ...]
    timelines: tuple[syntax.Order | syntax.Stagger, ...]
    whole: bool
    place: int
    span: Span


def contents(
    tree: syntax.Schedule, groups: Groups, found: list[Diagnostic]
) -> list[Content]:
    """The sections of a schedule in the order of their timelines."""
    sections: list[Content] = []
    outside: list[syntax.Placement] = []
    for place, statement in enumerate(tree.statements):
        match statement:
            case syntax.Each():
                body, whole = groups.expand(statement.body, found)
                sections.append(_content(statement, body, whole, place, statement.span))
            case syntax.Part() | syntax.Use() | syntax.Order() | syntax.Stagger():
                outside.append(statement)
    if outside:
        first = next((s for s in outside if not isinstance(s, syntax.Use)), outside[0])
        timeline = next((s for s in outside if _is_timeline(s)), outside[-1])
        body, whole = groups.expand(outside, found)
        place = tree.statements.index(timeline)
        sections.append(_content(None, body, whole, place, first.span))
    return sorted(sections, key=lambda section: section.place)


def _is_timeline(statement: syntax.Placement) -> bool:
    return isinstance(statement, syntax.Order | syntax.Stagger)


def _content(
    each: syntax.Each | None,
    body: Sequence[syntax.Placement],
    whole: bool,
    place: int,
    span: Span,
) -> Content:
    parts = tuple(s for s in body if isinstance(s, syntax.Part))
    timelines = tuple(s for s in body if isinstance(s, syntax.Order | syntax.Stagger))
    return Content(each, parts, timelines, whole, place, span)


@dataclass(slots=True)
class SectionResolver:
    """Resolves sections one by one; findings go into `found`.

    `known_pieces` is False when the split could not be read. `used_streams` collects
    the streams that parts run on, `parts` the names of those of all sections.
    """

    streams: Sequence[str]
    split: model.Split | None
    known_pieces: bool
    names: Names
    found: list[Diagnostic]
    via: Callable[[syntax.Call], model.Via | None]
    used_streams: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)

    def declare(self, content: Content) -> None:
        """Take the names that a section gives."""
        if content.each is not None:
            self.names.declare("iteration", content.each.name)
        for part in content.parts:
            self.names.declare("part", part.name)
            self.parts.add(part.name.text)

    def resolve(self, content: Content) -> model.Section | None:
        """The section, or None when its parts or its timeline could not be read."""
        each = content.each
        having = None
        if each is not None:
            if each.path.anchor in ("prev", "next"):
                self.found.append(_misplaced_anchor(each.path))
            if each.having is not None:
                having = resolve_having(each.having, self.found)
        self._check_timelines(content)
        self._check_weights(content)
        pieces = len(self.split.pieces) if self.split else 1
        names = [part.name.text for part in content.parts]
        known_parts = names if content.whole else None
        placed = {
            part.name.text: self._part_streams(
                part, pieces if self.known_pieces else None
            )
            for part in content.parts
        }
        parts = [
            self._part(part, known_parts, placed[part.name.text])
            for part in content.parts
        ]
        sound = [part for part in parts if part is not None]
        if content.whole and len(sound) == len(names):
            self.found += check_selectors(sound)
        if not content.timelines or not self.known_pieces or not content.whole:
            return None
        located = {name: found for name, found in placed.items() if found is not None}
        written = content.timelines[0]
        elsewhere = self.parts - set(names)
        if len(located) < len(names):
            # Where a part runs is not known, but whether there is one is.
            self.found += [
                unknown_part(reference, names, elsewhere)
                for reference in references(written)
                if reference.name.text not in names
            ]
            return None
        once = {part.name.text for part in content.parts if _fetches(part)}
        timeline = Timeline(located, self.split, each is not None, elsewhere, once)
        windows = self._windows(written, timeline)
        if not timeline.found:
            self.found += check_complete(sound, windows, timeline, written.span)
        self.found += timeline.found
        return model.Section(
            model.Each(each.name.text, resolve_path(each.path), each.span, having)
            if each is not None
            else None,
            tuple(sound),
            windows,
            "order" if isinstance(written, syntax.Order) else "stagger",
            written.span,
            content.span,
        )

    def _check_timelines(self, content: Content) -> None:
        """A section has one timeline."""
        where = (
            "this 'each'" if content.each is not None else "the parts outside 'each'"
        )
        for again in content.timelines[1:]:
            what = f"the timeline of {where}"
            self.found.append(given_twice(what, again.span, content.timelines[0].span))
        if not content.timelines:
            self.found.append(_no_timeline(content))

    def _check_weights(self, content: Content) -> None:
        """Weights are fetched for iterations of an `each`, whose parts read them."""
        fetching = [part for part in content.parts if _fetches(part)]
        if content.each is None:
            label = "outside 'each' there is no iteration to fetch ahead of"
            self.found += [
                misplaced_weights(label, part.selector.span) for part in fetching
            ]
        elif fetching and content.whole and len(fetching) == len(content.parts):
            label = "no other part of this 'each' could read them"
            self.found.append(misplaced_weights(label, fetching[0].selector.span))

    def _windows(
        self, written: syntax.Order | syntax.Stagger, timeline: Timeline
    ) -> tuple[model.Window, ...]:
        if isinstance(written, syntax.Order):
            return timeline.order(written)
        index = written.index
        split = timeline.split
        if split is None:
            timeline.found.append(_nothing_to_stagger(index))
            return ()
        if index.text != split.index:
            timeline.found.append(
                unknown_name("split index", index.text, index.span, [split.index])
            )
            return ()
        return timeline.stagger(written)

    # ---- parts -----------------------------------------------------------------------

    def _part(
        self,
        part: syntax.Part,
        names: Sequence[str] | None,
        streams: tuple[str, ...] | None,
    ) -> model.Part | None:
        rowwise = check_part(part, self.found)
        selector = resolve_selector(part.selector, names, self.found)
        via = self.via(part.via) if part.via is not None else None
        if selector is None or streams is None or (part.via and via is None):
            return None
        name = part.name
        return model.Part(
            name.text, streams, selector, name.span, part.span, via, rowwise
        )

    def _part_streams(
        self, part: syntax.Part, pieces: int | None
    ) -> tuple[str, ...] | None:
        """The stream of each piece; None after an error, or when there is no number."""
        match part.on:
            case None:
                return (model.MAIN,) * (pieces or 1)
            case syntax.Name(name, span):
                found = self._stream_name(name, span)
                return (found,) * (pieces or 1) if found else None
            case syntax.ListOf(items, span):
                listed = [self._list_entry(item) for item in items]
        if pieces is not None and len(listed) != pieces:
            self.found.append(_stream_count(span, len(listed), pieces, self.split))
            return None
        streams = tuple(stream for stream in listed if stream is not None)
        return streams if len(streams) == len(listed) else None

    def _list_entry(self, item: syntax.Expression) -> str | None:
        if isinstance(item, syntax.Symbol):
            return self._stream_name(item.name, item.span)
        message = "this must be the name of a stream"
        self.found.append(Diagnostic("DFS108", message, Label(item.span, "here")))
        return None

    def _stream_name(self, name: str, span: Span) -> str | None:
        if name != model.MAIN and name not in self.streams:
            choices = (*self.streams, model.MAIN)
            declare = f"'stream {name}'"
            self.found.append(unknown_name("stream", name, span, choices, declare))
            # Perhaps a misspelt one, which then only seems to be unused.
            self.used_streams.update(self.streams)
            return None
        self.used_streams.add(name)
        return name


def _fetches(part: syntax.Part) -> bool:
    return names_weights(part.selector)


def _no_timeline(content: Content) -> Diagnostic:
    if content.each is not None:
        message, label = "this 'each' has no timeline", "no 'order' or 'stagger' in it"
    else:
        message = "the parts outside 'each' have no timeline"
        label = "no 'order' or 'stagger' beside it"
    return Diagnostic(
        "DFS312",
        message,
        Label(content.span, label),
        helps=("add 'order:' with one line for each window",),
    )


def _nothing_to_stagger(index: syntax.Name) -> Diagnostic:
    return Diagnostic(
        "DFS102",
        f"there is no split index '{index.text}'",
        Label(index.span, "unknown"),
        helps=(f"add 'split batch into 2 as {index.text}' to the schedule",),
    )


def _misplaced_anchor(path: syntax.Path) -> Diagnostic:
    return Diagnostic(
        "DFS114",
        f"'{path.anchor}' means nothing here",
        Label(path.span, "no iteration is running yet"),
        helps=("start the path with a dot",),
    )


def _stream_count(
    span: Span, listed: int, pieces: int, split: model.Split | None
) -> Diagnostic:
    what = f"{pieces} pieces" if pieces > 1 else "1 piece"
    where: tuple[Label, ...] = ()
    if split is not None:
        where = (Label(split.span, f"cut into {what} here"),)
    return Diagnostic(
        "DFS309",
        f"a list of streams has one for each piece: {what}",
        Label(span, f"{listed} listed"),
        where,
    )
