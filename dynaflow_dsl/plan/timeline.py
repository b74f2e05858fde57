"""The order in which steps are issued, as places of the text and as a run over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP
from dynaflow_dsl.plan.model import Layer
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.source import Span


@dataclass(frozen=True, slots=True)
class Reference:
    """A step that another one comes after, as the schedule says; `piece` as in
    `PlannedStep`."""

    part: str
    piece: int | None
    previous: bool
    label: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of one window; `run` tells concurrent runs of a window apart.

    `piece` is None for a part that runs once over all pieces.
    """

    part: str
    piece: int | None
    previous: bool
    stream: str
    run: int
    label: str
    span: Span
    after: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """Steps of one window in the order in which they are issued."""

    steps: tuple[PlannedStep, ...]
    span: Span


# The run of what stands in a window without being one of its steps.
NO_RUN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A place in the text of the step where something is issued on a stream.

    `segment` is its stretch, `layer` the iteration that it runs there, or the gap.
    `merge` is the joining of pieces before `after`; its part is `after` too. Two sites
    are the same only if they are one object.
    """

    segment: int
    window: int
    part: str
    piece: int | None
    previous: bool
    layer: Layer
    stream: str
    run: int
    label: str
    span: Span
    merge: bool = False
    after: tuple[Reference, ...] = ()

    @property
    def in_loop(self) -> bool:
        """Whether it is passed more than once."""
        return self.layer.in_loop


@dataclass(frozen=True, slots=True)
class Event:
    """A site at one iteration (for a gap, its number): what is issued at run time."""

    site: Site
    iteration: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Passes `start` to `stop` - 1 over the timeline of a section, of equal text.

    One pass is straight, more are a loop. The pass after the last iteration holds the
    `prev` steps that are left.
    """

    section: int
    start: int
    stop: int
    sites: tuple[Site, ...]

    @property
    def loop(self) -> bool:
        """Whether the text stands once for several passes."""
        return self.stop - self.start > 1


@dataclass(frozen=True, slots=True)
class Timeline:
    """All sites in the order of the text."""

    before: Site
    stretches: tuple[Stretch, ...]
    merge: Site | None
    after: Site

    def run(self) -> list[Event]:
        """Everything that is issued, in order."""
        events = [Event(self.before, 0)]
        for stretch in self.stretches:
            for i in range(stretch.start, stretch.stop):
                events += [Event(site, site.layer.at(i)) for site in stretch.sites]
        if self.merge is not None:
            events.append(Event(self.merge, 0))
        events.append(Event(self.after, 0))
        return events


@dataclass(frozen=True, slots=True)
class Item:
    """What one pass issues at a place; `iteration` is a number, as for events."""

    window: int
    step: PlannedStep
    iteration: int

    @property
    def is_gap(self) -> bool:
        """Whether it lies between iterations."""
        return self.step.part == GAP


def on_main(segment: int, part: str, span: Span, *, merge: bool = False) -> Site:
    """A site of `before` or `after`."""
    return Site(
        segment, 0, part, None, False, Layer(0), MAIN, NO_RUN, part, span, merge
    )


def surround(stretches: tuple[Stretch, ...], span: Span, *, merges: bool) -> Timeline:
    """A timeline with what runs before and after the parts."""
    last = len(stretches) + 1
    return Timeline(
        before=on_main(0, BEFORE, span),
        stretches=stretches,
        merge=on_main(last, AFTER, span, merge=True) if merges else None,
        after=on_main(last, AFTER, span),
    )


def sites(
    items: tuple[Item, ...], segment: int, start: int, *, loop: bool, left: bool
) -> Iterator[Site]:
    """The sites of one pass; `left` are the `prev` steps after the last iteration."""
    for item in items:
        step = item.step
        offset = item.iteration - start if loop else item.iteration
        # After the last iteration the text names it, which `prev.` was to tell.
        label = step.label.removeprefix("prev.") if left else step.label
        yield Site(
            segment,
            item.window,
            step.part,
            step.piece,
            step.previous,
            Layer(offset, loop),
            step.stream,
            step.run,
            label,
            step.span,
            after=step.after,
        )


def claimed_pairs(events: Sequence[Event]) -> Iterator[tuple[int, int]]:
    """Pairs of events that a window claims to be concurrent, earlier issue first."""
    window: list[int] = []
    for n, event in enumerate(events):
        first = events[window[0]].site if window else None
        site = event.site
        here = (site.segment, site.window)
        # A loop of one window starts over with the site it began with.
        if first is None or here != (first.segment, first.window) or site is first:
            window = []
        for other in window:
            runs = {events[other].site.run, site.run}
            if len(runs) == 2 and NO_RUN not in runs:
                yield other, n
        window.append(n)
