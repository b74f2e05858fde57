"""The order in which steps are issued, as text positions and as a run over layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.source import Span

Section = Literal["before", "first", "loop", "last", "after"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of one window; `run` tells concurrent runs of a window apart."""

    part: str
    piece: int
    previous: bool
    stream: str
    run: int
    label: str
    span: Span


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """Steps of one window in the order in which they are issued."""

    steps: tuple[PlannedStep, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the text of the step where something is issued on a stream.

    `merge` is the joining of pieces before `after`; its part is `after` too.
    """

    section: Section
    window: int
    part: str
    piece: int
    previous: bool
    stream: str
    run: int
    label: str
    span: Span
    merge: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """A site at one iteration: what is issued when the program runs."""

    site: Site
    iteration: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All sites in text order, and how the loop runs.

    The loop runs iterations `start` to the last one; it starts at 1 only when iteration
    0 differs (it has no steps of an iteration before), else at 0.
    """

    before: Site
    first: tuple[Site, ...]
    loop: tuple[Site, ...]
    last: tuple[Site, ...]
    merge: Site | None
    after: Site
    start: int

    def run(self, iterations: int) -> list[Event]:
        """Everything that is issued, in order, for a model of so many iterations."""
        events = [Event(self.before, 0)]
        events += [Event(site, 0) for site in self.first]
        for i in range(self.start, iterations):
            events += [Event(s, i - 1 if s.previous else i) for s in self.loop]
        events += [Event(site, iterations - 1) for site in self.last]
        if self.merge is not None:
            events.append(Event(self.merge, 0))
        events.append(Event(self.after, 0))
        return events


def lay_out(
    windows: Sequence[PlannedWindow], iterations: int, span: Span, *, merges: bool
) -> Timeline:
    """Write the windows out into iteration 0, the loop, and what is left."""

    def sites(section: Section, wanted: Sequence[bool]) -> tuple[Site, ...]:
        return tuple(
            Site(
                section,
                number,
                step.part,
                step.piece,
                step.previous,
                step.stream,
                step.run,
                # After the loop the text names the layer, which `prev.` was to tell.
                step.label if section != "last" else step.label.removeprefix("prev."),
                step.span,
            )
            for number, window in enumerate(windows)
            for step in window.steps
            if step.previous in wanted
        )

    def on_main(section: Section, part: str, *, merge: bool = False) -> Site:
        return Site(section, 0, part, 0, False, "main", 0, part, span, merge)

    staggered = any(step.previous for window in windows for step in window.steps)
    start = 1 if staggered else 0
    return Timeline(
        before=on_main("before", BEFORE),
        first=sites("first", (False,)) if staggered else (),
        loop=sites("loop", (False, True)) if iterations > start else (),
        last=sites("last", (True,)) if staggered else (),
        merge=on_main("after", AFTER, merge=True) if merges else None,
        after=on_main("after", AFTER),
        start=start,
    )
