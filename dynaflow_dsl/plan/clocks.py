"""Vector clocks over a timeline, and the fewest waits that keep every dependence.

A clock says, for each stream, how many of its steps are known to have finished. Waits
stand in the text, so a wait in a loop is the same in every pass; the set found is
irredundant: without any one of its waits some dependence of some iteration breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.bind.model import BEFORE
from dynaflow_dsl.plan.dependences import BEFORE_STEP, Need, Step, step_of
from dynaflow_dsl.plan.timeline import Event, Site, claimed_pairs
from dynaflow_dsl.resolve.model import MAIN

Clock = tuple[int, ...]


class Signal(NamedTuple):
    """An event variable: the last recorded run of one piece of a part."""

    part: str
    piece: int | None


START = Signal(BEFORE_STEP.part, BEFORE_STEP.piece)


class Moment(NamedTuple):
    """Where a wait of a stream stands: just before a site, or at the fork.

    The site may be on another stream: one of the same window that gives the event anew.
    """

    site: Site | None
    stream: str


Waits = Mapping[Moment, tuple[Signal, ...]]


@dataclass(slots=True)
class Run:
    """Clocks of a simulated run, so far as it has come.

    `names[n]` is the event variable of event n. `start[n]` is the clock of event n's
    stream once its waits are over, `end[n]` after the event itself; `of_stream[n]` are
    all streams' clocks when event n has been issued, `ready[n]` the same between its
    waits and itself. `time[n]` is event n's own count, `signals` what each event
    variable stands for at the end.
    """

    events: Sequence[Event]
    streams: tuple[str, ...]
    number: Mapping[Step, int]
    names: Sequence[Signal]
    start: list[Clock] = field(default_factory=list)
    end: list[Clock] = field(default_factory=list)
    ready: list[dict[str, Clock]] = field(default_factory=list)
    of_stream: list[dict[str, Clock]] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    signals: dict[Signal, Clock] = field(default_factory=dict)

    def happens_before(self, earlier: int, later: int) -> bool:
        """Whether event `earlier` has surely finished when `later` starts."""
        stream = self.streams.index(self.events[earlier].site.stream)
        return self.start[later][stream] >= self.time[earlier]

    def keeps(self, wanted: Sequence[Need], n: int) -> bool:
        """Whether everything that event n needs has surely finished."""
        return all(self.happens_before(self.number[need.step], n) for need in wanted)

    def cut(self, count: int) -> Run:
        """The same run when only so many events were issued."""
        return Run(
            self.events,
            self.streams,
            self.number,
            self.names,
            self.start[:count],
            self.end[:count],
            self.ready[:count],
            self.of_stream[:count],
            self.time[:count],
            dict(zip(self.names[:count], self.end, strict=False)),
        )


def signal_of(event: Event) -> Signal:
    """The event variable that stands for an event."""
    return Signal(event.site.part, event.site.piece)


def numbered(events: Sequence[Event]) -> dict[Step, int]:
    """The first event of each step."""
    number: dict[Step, int] = {}
    for n, event in enumerate(events):
        number.setdefault(step_of(event), n)
    return number


def begin(events: Sequence[Event], streams: tuple[str, ...]) -> Run:
    """A run that has issued nothing yet."""
    return Run(events, streams, numbered(events), list(map(signal_of, events)))


def simulate(events: Sequence[Event], streams: tuple[str, ...], waits: Waits) -> Run:
    """Run the events in order with these waits."""
    run = begin(events, streams)
    extend(run, len(events), waits)
    return run


def extend(run: Run, count: int, waits: Waits) -> None:
    """Go on with a run until `count` of its events are issued."""
    issued = len(run.time)
    clock = (
        dict(run.of_stream[-1])
        if issued
        else {name: (0,) * len(run.streams) for name in run.streams}
    )

    def wait(stream: str, wanted: tuple[Signal, ...]) -> None:
        for signal in wanted:
            # Until its step has run, an event stands for the start of the plan.
            known = run.signals.get(signal) or run.signals[START]
            clock[stream] = _join(clock[stream], known)

    for n in range(issued, count):
        event = run.events[n]
        stream = event.site.stream
        for name in run.streams:
            wait(name, waits.get(Moment(event.site, name), ()))
        run.start.append(clock[stream])
        run.ready.append(dict(clock))
        k = run.streams.index(stream)
        now = clock[stream][k] + 1
        clock[stream] = (*clock[stream][:k], now, *clock[stream][k + 1 :])
        run.end.append(clock[stream])
        run.time.append(now)
        run.signals[run.names[n]] = clock[stream]
        if event.site.part == BEFORE:
            for name in run.streams:
                wait(name, waits.get(Moment(None, name), ()))
        run.of_stream.append(dict(clock))


def _join(left: Clock, right: Clock) -> Clock:
    return tuple(map(max, left, right))


def find_waits(
    events: Sequence[Event], streams: tuple[str, ...], needs: Sequence[Sequence[Need]]
) -> Waits:
    """An irredundant set of waits under which every need of every event is kept.

    Every needed step must have been issued earlier.
    """
    waits = _fork(events, streams)
    first: dict[Site, int] = {}
    for n, event in enumerate(events):
        first.setdefault(event.site, n)
    run = begin(events, streams)
    number = run.number
    at_once = set(claimed_pairs(events))
    for n, event in enumerate(events):
        extend(run, n + 1, waits)
        missing = [
            need.step
            for need in needs[n]
            if not run.happens_before(number[need.step], n)
        ]
        if not missing:
            continue
        missing.sort(key=lambda step: number[step], reverse=True)
        known = run.start[n]
        start = first[event.site]
        for step in dict.fromkeys(missing):
            position = number[step]
            stream = streams.index(events[position].site.stream)
            if known[stream] < run.time[position]:
                known = _join(known, run.end[position])
                signal = Signal(step.part, step.piece)
                place = _place(run, position, n, at_once)
                moment = Moment(place, event.site.stream)
                waits[moment] = (*waits.get(moment, ()), signal)
                start = min(start, first[place])
        # A wait in a loop holds for the passes before, too: go on from the first one.
        run = run.cut(start)
        extend(run, n + 1, waits)
    return _without_redundant(run, needs, waits, first)


def _place(
    run: Run, position: int, n: int, at_once: Collection[tuple[int, int]]
) -> Site:
    """Where event n waits for the event at `position`: right before itself.

    A step of its window that gives the same event variable anew may run at the same
    time, so that n must not wait for that one: then it waits before that is issued.
    """
    signal = run.names[position]
    again = (k for k in range(position + 1, n) if run.names[k] == signal)
    renewed = next(again, None)
    if renewed is not None and (renewed, n) in at_once:
        return run.events[renewed].site
    return run.events[n].site


def _fork(
    events: Sequence[Event], streams: tuple[str, ...]
) -> dict[Moment, tuple[Signal, ...]]:
    """Streams that begin inside a loop are forked before it, not once per pass."""
    first: dict[str, Site] = {}
    for event in events:
        first.setdefault(event.site.stream, event.site)
    return {
        Moment(None, name): (START,)
        for name in streams
        if name != MAIN and name in first and first[name].in_loop
    }


def _without_redundant(
    run: Run,
    needs: Sequence[Sequence[Need]],
    waits: dict[Moment, tuple[Signal, ...]],
    first: Mapping[Site, int],
) -> Waits:
    """Leave out one wait after the other where every need is kept without it."""
    for moment in list(waits):
        for signal in waits[moment]:
            rest = tuple(s for s in waits[moment] if s != signal)
            fewer = {**waits, moment: rest}
            # Until its first place is reached, nothing is another way.
            start = first[moment.site] if moment.site is not None else 0
            tried = _kept(run, needs, fewer, start)
            if tried is not None:
                run, waits = tried, fewer
    return {moment: signals for moment, signals in waits.items() if signals}


def _kept(
    run: Run, needs: Sequence[Sequence[Need]], waits: Waits, start: int
) -> Run | None:
    """The run with other waits from event `start` on; None once a need is not kept."""
    tried = run.cut(start)
    for n in range(start, len(run.events)):
        extend(tried, n + 1, waits)
        if not tried.keeps(needs[n], n):
            return None
    return tried
