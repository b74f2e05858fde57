"""Vector clocks over a timeline, and the fewest waits that keep every dependence.

A clock says, for each stream, how many of its steps are known to have finished. Waits
stand in the text, so a wait in the loop is the same in every iteration; the set found
is irredundant: without any one of its waits some dependence of some iteration breaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.bind.model import BEFORE
from dynaflow_dsl.plan.dependences import BEFORE_STEP, Need, Step, step_of
from dynaflow_dsl.plan.timeline import Event, Site

Clock = tuple[int, ...]


class Signal(NamedTuple):
    """An event variable: the last recorded run of one piece of a part."""

    part: str
    piece: int


START = Signal(BEFORE_STEP.part, BEFORE_STEP.piece)


class Moment(NamedTuple):
    """Where a wait stands: just before a site, or on a stream at the fork."""

    site: Site | None
    stream: str


@dataclass(frozen=True, slots=True)
class Run:
    """Clocks of a simulated run.

    `start[n]` is the clock of event n's stream once its waits are over, `end[n]` after
    the event itself; `of_stream[n]` are all streams' clocks when event n has been
    issued, `ready[n]` the same between its waits and itself. `time[n]` is event n's own
    count, `signals` what each event variable stands for at the end.
    """

    events: tuple[Event, ...]
    streams: tuple[str, ...]
    start: list[Clock]
    end: list[Clock]
    ready: list[dict[str, Clock]]
    of_stream: list[dict[str, Clock]]
    time: list[int]
    number: dict[Step, int]
    signals: dict[Signal, Clock] = field(default_factory=dict)

    def happens_before(self, earlier: int, later: int) -> bool:
        """Whether event `earlier` has surely finished when `later` starts."""
        stream = self.streams.index(self.events[earlier].site.stream)
        return self.start[later][stream] >= self.time[earlier]


Waits = Mapping[Moment, tuple[Signal, ...]]


def simulate(events: Sequence[Event], streams: tuple[str, ...], waits: Waits) -> Run:
    """Run the events in order with these waits."""
    run = Run(tuple(events), streams, [], [], [], [], [], {})
    _extend(run, len(events), waits)
    return run


def _extend(run: Run, count: int, waits: Waits) -> None:
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
        wait(stream, waits.get(Moment(event.site, stream), ()))
        run.start.append(clock[stream])
        run.ready.append(dict(clock))
        k = run.streams.index(stream)
        now = clock[stream][k] + 1
        clock[stream] = (*clock[stream][:k], now, *clock[stream][k + 1 :])
        run.end.append(clock[stream])
        run.time.append(now)
        run.signals[Signal(event.site.part, event.site.piece)] = clock[stream]
        run.number.setdefault(step_of(event), n)
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

    Every needed step must have been issued earlier. `events` is a run over enough
    iterations for the loop to repeat itself; `prove` checks the whole length.
    """
    waits = _fork(events, streams)
    number: dict[Step, int] = {}
    everything = tuple(events)
    run = Run(everything, streams, [], [], [], [], [], {})
    for n, event in enumerate(everything):
        number.setdefault(step_of(event), n)
        _extend(run, n + 1, waits)
        missing = [
            need.step
            for need in needs[n]
            if not run.happens_before(number[need.step], n)
        ]
        if not missing:
            continue
        missing.sort(key=lambda step: number[step], reverse=True)
        moment = Moment(event.site, event.site.stream)
        known = run.start[n]
        # A wait in the loop holds for the passes before, too: what follows starts over.
        started = run
        run = Run(everything, streams, [], [], [], [], [], {})
        for step in dict.fromkeys(missing):
            position = number[step]
            stream = streams.index(events[position].site.stream)
            if known[stream] < started.time[position]:
                known = _join(known, started.end[position])
                signal = Signal(step.part, step.piece)
                waits = {**waits, moment: (*waits.get(moment, ()), signal)}
    return _without_redundant(events, streams, needs, waits)


def _fork(events: Sequence[Event], streams: tuple[str, ...]) -> Waits:
    """Streams that begin inside the loop are forked before it, not once per pass."""
    first: dict[str, Site] = {}
    for event in events:
        first.setdefault(event.site.stream, event.site)
    return {
        Moment(None, name): (START,)
        for name in streams
        if name != "main" and name in first and first[name].section == "loop"
    }


def _without_redundant(
    events: Sequence[Event],
    streams: tuple[str, ...],
    needs: Sequence[Sequence[Need]],
    waits: Waits,
) -> Waits:
    for moment in list(waits):
        for signal in waits[moment]:
            rest = tuple(s for s in waits[moment] if s != signal)
            fewer = {**waits, moment: rest}
            if keeps(simulate(events, streams, fewer), needs):
                waits = fewer
    return {moment: signals for moment, signals in waits.items() if signals}


def keeps(run: Run, needs: Sequence[Sequence[Need]]) -> bool:
    """Whether every need of every event is kept in a run."""
    return all(
        run.happens_before(run.number[need.step], n)
        for n, wanted in enumerate(needs)
        for need in wanted
    )
