"""One schedule: its streams, its split, its parts and their timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.capture import resolve_captures
from dynaflow_dsl.resolve.findings import Names, given_twice, not_yet, unknown_name
from dynaflow_dsl.resolve.groups import Groups, check_part
from dynaflow_dsl.resolve.parameters import listed, resolve_parameters
from dynaflow_dsl.resolve.requirements import check_names
from dynaflow_dsl.resolve.selectors import (
    check_selectors,
    resolve_path,
    resolve_selector,
)
from dynaflow_dsl.resolve.split import resolve_split
from dynaflow_dsl.resolve.stream import resolve_stream
from dynaflow_dsl.resolve.timeline import Timeline, check_complete
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of a schedule by kind, without those that were refused."""

    streams: tuple[syntax.Stream, ...]
    split: syntax.Split | None
    each: syntax.Each | None
    requirements: tuple[syntax.Require, ...]
    captures: tuple[syntax.Capture, ...]


class ScheduleResolver:
    """Resolves one schedule; findings go into `found`, shared by the whole file.

    `given` are the parameters that the command line sets.
    """

    def __init__(
        self,
        tree: syntax.Schedule,
        groups: Groups,
        given: Mapping[str, str],
        found: list[Diagnostic],
    ) -> None:
        self.tree = tree
        self.groups = groups
        self.found = found
        self.names = Names(found)
        self.scope = resolve_parameters(tree, given, self.names, found)
        self.used_streams: set[str] = set()
        # Whether something that may use names was refused, so that nothing can be said
        # about names that seem unused or unknown.
        self.incomplete = False

    def resolve(self) -> model.Schedule | None:
        """The schedule, or None when its parts or timeline could not be read."""
        statements = self._statements()
        streams = tuple(self._stream(stream) for stream in statements.streams)
        split = None
        if statements.split is not None:
            split = resolve_split(statements.split, self.scope, self.found)
            self.names.declare("split index", statements.split.index)
        captures = resolve_captures(statements.captures, self.scope, self.found)
        known_pieces = split is not None or statements.split is None
        each = None
        if statements.each is not None:
            each = self._each(statements.each, streams, split, known_pieces)
        elif not self.incomplete:
            self.found.append(_nothing_placed(self.tree))
        if not self.incomplete:
            self.found += (
                _unused(stream)
                for stream in streams
                if stream.name not in self.used_streams
            )
        dimensions = [statements.split.dimension.text] if statements.split else []
        for requirement in statements.requirements:
            self.found += check_names(requirement, dimensions, self.scope)
        if each is None:
            return None
        return model.Schedule(
            self.tree.name.text,
            self.tree.doc,
            streams,
            split,
            each,
            self.tree.name.span,
            self.tree.span,
            listed(self.tree, self.scope),
            tuple(
                model.Requirement(requirement.condition, requirement.span)
                for requirement in statements.requirements
            ),
            captures,
        )

    def _statements(self) -> Statements:
        """Sort the statements, and refuse those that this release does not have."""
        streams: list[syntax.Stream] = []
        split: syntax.Split | None = None
        each: syntax.Each | None = None
        requirements: list[syntax.Require] = []
        captures: list[syntax.Capture] = []
        for statement in self.tree.statements:
            span = statement.span
            match statement:
                case syntax.Stream():
                    streams.append(statement)
                case syntax.Split():
                    if split is not None:
                        self.found.append(given_twice("'split'", span, split.span))
                    split = split or statement
                case syntax.Each() if each is None:
                    each = statement
                case syntax.Each():
                    self._refuse("a second 'each' in one schedule", span)
                case syntax.Require():
                    requirements.append(statement)
                case syntax.Capture():
                    captures.append(statement)
                case syntax.Part():
                    self._refuse("a 'part' outside 'each'", span)
                case syntax.Use():
                    self._refuse("'use' outside 'each'", span)
                case syntax.Order():
                    self._refuse("an 'order' outside 'each'", span)
                case syntax.Stagger():
                    self._refuse("a 'stagger' outside 'each'", span)
        return Statements(
            tuple(streams), split, each, tuple(requirements), tuple(captures)
        )

    def _refuse(self, what: str, span: Span) -> None:
        self.incomplete = True
        self.found.append(not_yet(what, span))

    def _stream(self, stream: syntax.Stream) -> model.Stream:
        if not self.names.declare("stream", stream.name):
            self.used_streams.add(stream.name.text)
        return resolve_stream(stream, self.scope, self.found)

    # ---- each ------------------------------------------------------------------------

    def _each(
        self,
        each: syntax.Each,
        streams: Sequence[model.Stream],
        split: model.Split | None,
        known_pieces: bool,
    ) -> model.Each | None:
        self.names.declare("iteration", each.name)
        if each.path.anchor in ("prev", "next"):
            self.found.append(_misplaced_anchor(each.path))
        if each.having is not None:
            self.found.append(not_yet("'having'", each.having.span))
        timelines: list[syntax.Order | syntax.Stagger] = []
        declared: list[syntax.Part] = []
        body, whole = self.groups.expand(each.body, self.found)
        self.incomplete |= not whole
        for statement in body:
            match statement:
                case syntax.Part():
                    self.names.declare("part", statement.name)
                    declared.append(statement)
                case syntax.Order() | syntax.Stagger():
                    timelines.append(statement)
        for again in timelines[1:]:
            what = "the timeline of this 'each'"
            self.found.append(given_twice(what, again.span, timelines[0].span))
        if not timelines:
            self.found.append(_no_timeline(each))
        pieces = len(split.weights) if split else 1
        names = [part.name.text for part in declared]
        known_parts = names if whole else None
        stream_names = [stream.name for stream in streams]
        placed = {
            part.name.text: self._part_streams(
                part, stream_names, pieces if known_pieces else None, split
            )
            for part in declared
        }
        parts = [
            self._part(part, known_parts, placed[part.name.text]) for part in declared
        ]
        sound = [part for part in parts if part is not None]
        if whole and len(sound) == len(declared):
            self.found += check_selectors(sound)
        if not timelines or not known_pieces or self.incomplete:
            return None
        located = {name: found for name, found in placed.items() if found is not None}
        if len(located) < len(names):
            return None
        timeline = Timeline(located, split)
        windows = self._windows(timelines[0], timeline)
        if not timeline.found:
            self.found += check_complete(sound, windows, timeline, timelines[0].span)
        self.found += timeline.found
        return model.Each(
            each.name.text,
            resolve_path(each.path),
            tuple(sound),
            windows,
            "order" if isinstance(timelines[0], syntax.Order) else "stagger",
            timelines[0].span,
            each.span,
        )

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
        check_part(part, self.found)
        selector = resolve_selector(part.selector, names, self.found)
        if selector is None or streams is None:
            return None
        name = part.name
        return model.Part(name.text, streams, selector, name.span, part.span)

    def _part_streams(
        self,
        part: syntax.Part,
        known: Sequence[str],
        pieces: int | None,
        split: model.Split | None,
    ) -> tuple[str, ...] | None:
        """The stream of each piece; None after an error, or when there is no number."""
        match part.on:
            case None:
                return (model.MAIN,) * (pieces or 1)
            case syntax.Name(name, span):
                found = self._stream_name(name, span, known)
                return (found,) * (pieces or 1) if found else None
            case syntax.ListOf(items, span):
                listed = [self._list_entry(item, known) for item in items]
        if pieces is not None and len(listed) != pieces:
            self.found.append(_stream_count(span, len(listed), pieces, split))
            return None
        streams = tuple(stream for stream in listed if stream is not None)
        return streams if len(streams) == len(listed) else None

    def _list_entry(self, item: syntax.Expression, known: Sequence[str]) -> str | None:
        if isinstance(item, syntax.Symbol):
            return self._stream_name(item.name, item.span, known)
        message = "this must be the name of a stream"
        self.found.append(Diagnostic("DFS108", message, Label(item.span, "here")))
        return None

    def _stream_name(self, name: str, span: Span, known: Sequence[str]) -> str | None:
        if name != model.MAIN and name not in known:
            choices = (*known, model.MAIN)
            self.found.append(unknown_name("stream", name, span, choices))
            # Perhaps a misspelt one, which then only seems to be unused.
            self.used_streams.update(known)
            return None
        self.used_streams.add(name)
        return name


def _nothing_placed(tree: syntax.Schedule) -> Diagnostic:
    return Diagnostic(
        "DFS312",
        f"schedule '{tree.name.text}' places nothing",
        Label(tree.name.span, "no 'each' in this schedule"),
        helps=("add 'each layer in .model.layers.*:' with parts and a timeline",),
    )


def _no_timeline(each: syntax.Each) -> Diagnostic:
    return Diagnostic(
        "DFS312",
        "this 'each' has no timeline",
        Label(each.span, "no 'order' or 'stagger' in it"),
        helps=("add 'order:' with one line for each window",),
    )


def _nothing_to_stagger(index: syntax.Name) -> Diagnostic:
    return Diagnostic(
        "DFS102",
        f"there is no split index '{index.text}'",
        Label(index.span, "unknown"),
        helps=(f"add 'split batch into 2 as {index.text}' to the schedule",),
    )


def _unused(stream: model.Stream) -> Diagnostic:
    return Diagnostic(
        "DFS103",
        f"stream '{stream.name}' is never used",
        Label(stream.span, "no part runs on it"),
        helps=(f"remove the line, or write 'part NAME on {stream.name} = ...'",),
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
