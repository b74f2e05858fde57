"""One schedule: its parameters, its streams, its split and its sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.capture import resolve_captures
from dynaflow_dsl.resolve.findings import Names, given_twice
from dynaflow_dsl.resolve.groups import Groups
from dynaflow_dsl.resolve.kernels import Kernels
from dynaflow_dsl.resolve.parameters import (
    Argument,
    Setting,
    listed,
    resolve_parameters,
)
from dynaflow_dsl.resolve.requirements import check_names
from dynaflow_dsl.resolve.sections import SectionResolver, contents
from dynaflow_dsl.resolve.split import resolve_split
from dynaflow_dsl.resolve.stream import resolve_stream
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of a schedule that stand in no section, by kind."""

    streams: tuple[syntax.Stream, ...]
    split: syntax.Split | None
    requirements: tuple[syntax.Require, ...]
    captures: tuple[syntax.Capture, ...]


class ScheduleResolver:
    """Resolves one schedule; findings go into `found`, shared by the whole file.

    `given` are the parameters that somebody outside or a `select` sets.
    """

    def __init__(
        self,
        tree: syntax.Schedule,
        groups: Groups,
        given: Mapping[str, Setting | Argument],
        found: list[Diagnostic],
        kernels: Kernels | None = None,
    ) -> None:
        self.tree = tree
        self.groups = groups
        self.found = found
        self.kernels = kernels or Kernels(lambda _: ({}, ()), found)
        self.names = Names(found)
        self.scope = resolve_parameters(
            tree, given, self.names, found, groups.used_by(tree)
        )

    def resolve(self) -> model.Schedule | None:
        """The schedule, or None when a part or a timeline of it could not be read."""
        statements = self._statements()
        refused = set[str]()
        streams = tuple(self._stream(stream, refused) for stream in statements.streams)
        split = None
        if statements.split is not None:
            split = resolve_split(statements.split, self.scope, self.found)
            self.names.declare("split index", statements.split.index)
        phases = split.pieces if split is not None and split.phases else ()
        captures = resolve_captures(statements.captures, self.scope, self.found, phases)
        resolver = SectionResolver(
            [stream.name for stream in streams],
            split,
            split is not None or statements.split is None,
            self.names,
            self.found,
            lambda call: self.kernels.via(call, self.scope),
            # What is wrong with a name was said: it need not seem unused as well.
            refused,
        )
        written = contents(self.tree, self.groups, self.found)
        if not written:
            self.found.append(_nothing_placed(self.tree))
        for content in written:
            resolver.declare(content)
        sections = [resolver.resolve(content) for content in written]
        if all(content.whole for content in written):
            self.found += (
                _unused(stream)
                for stream in streams
                if stream.name not in resolver.used_streams
            )
        dimensions = [statements.split.dimension.text] if statements.split else []
        for requirement in statements.requirements:
            self.found += check_names(requirement, dimensions, self.scope)
        sound = [section for section in sections if section is not None]
        if not sound or len(sound) < len(written):
            return None
        return model.Schedule(
            self.tree.name.text,
            self.tree.doc,
            streams,
            split,
            tuple(sound),
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
        """Sort the statements that stand in no section."""
        streams: list[syntax.Stream] = []
        split: syntax.Split | None = None
        requirements: list[syntax.Require] = []
        captures: list[syntax.Capture] = []
        for statement in self.tree.statements:
            match statement:
                case syntax.Stream():
                    streams.append(statement)
                case syntax.Split(span=span):
                    if split is not None:
                        self.found.append(given_twice("'split'", span, split.span))
                    split = split or statement
                case syntax.Require():
                    requirements.append(statement)
                case syntax.Capture():
                    captures.append(statement)
                case _:
                    # In a section.
                    pass
        return Statements(tuple(streams), split, tuple(requirements), tuple(captures))

    def _stream(self, stream: syntax.Stream, refused: set[str]) -> model.Stream:
        if not self.names.declare("stream", stream.name):
            refused.add(stream.name.text)
        return resolve_stream(stream, self.scope, self.found)


def _nothing_placed(tree: syntax.Schedule) -> Diagnostic:
    return Diagnostic(
        "DFS312",
        f"schedule '{tree.name.text}' places nothing",
        Label(tree.name.span, "no 'each' in this schedule"),
        helps=("add 'each layer in .model.layers.*:' with parts and a timeline",),
    )


def _unused(stream: model.Stream) -> Diagnostic:
    return Diagnostic(
        "DFS103",
        f"stream '{stream.name}' is never used",
        Label(stream.span, "no part runs on it"),
        helps=(f"remove the line, or write 'part NAME on {stream.name} = ...'",),
    )
