"""Vector clocks over a timeline, and the fewest waits that keep every dependence.

A clock says, for each stream, how many of its steps are known to have finished. Waits
stand in the text, so a wait in the loop is the same in every iteration; the set found
is irredundant: without any one of its waits some dependence of some iteration breaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynaflow_dsl.bind.model import BEFORE
from dynaflow_dsl.plan.dependences import BEFORE_STEP, Need, Step, step_of
from dynaflow_dsl.plan.timeline import Event, Site

Clock = tuple[int, ...]


class Signal(NamedTuple):
    """An event variable: the last recorded run of one piece of a part."""

    part: str
    piece: int


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
    count.
    """

    events: tuple[Event, ...]
    streams: tuple[str, ...]
    start: tuple[Clock, ...]
    end: tuple[Clock, ...]
    ready: tuple[Mapping[str, Clock], ...]
    of_stream: tuple[Mapping[str, Clock], ...]
    time: tuple[int, ...]
    number: Mapping[Step, int]

    def happens_before(self, earlier: int, later: int) -> bool:
        """Whether event `earlier` has surely finished when `later` starts."""
        stream = self.streams.index(self.events[earlier].site.stream)
        return self.start[later][stream] >= self.time[earlier]


Waits = Mapping[Moment, tuple[Signal, ...]]


def simulate(events: Sequence[Event], streams: tuple[str, ...], waits: Waits) -> Run:
    """Run the events in order with these waits."""
    index = {name: k for k, name in enumerate(streams)}
    clock: dict[str, Clock] = {name: (0,) * len(streams) for name in streams}
    signals: dict[Signal, Clock] = {}
    start, end, times = [], [], []
    ready: list[Mapping[str, Clock]] = []
    after: list[Mapping[str, Clock]] = []
    number: dict[Step, int] = {}

    def wait(stream: str, wanted: tuple[Signal, ...]) -> None:
        for signal in wanted:
            # A wait for an event that was never recorded returns at once.
            if (known := signals.get(signal)) is not None:
                clock[stream] = _join(clock[stream], known)

    for n, event in enumerate(events):
        stream = event.site.stream
        wait(stream, waits.get(Moment(event.site, stream), ()))
        start.append(clock[stream])
        ready.append(dict(clock))
        k = index[stream]
        now = clock[stream][k] + 1
        clock[stream] = (*clock[stream][:k], now, *clock[stream][k + 1 :])
        end.append(clock[stream])
        times.append(now)
        signals[Signal(event.site.part, event.site.piece)] = clock[stream]
        number.setdefault(step_of(event), n)
        if event.site.part == BEFORE:
            for name in streams:
                wait(name, waits.get(Moment(None, name), ()))
        after.append(dict(clock))
    return Run(
        tuple(events),
        streams,
        tuple(start),
        tuple(end),
        tuple(ready),
        tuple(after),
        tuple(times),
        number,
    )


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
    for n, event in enumerate(events):
        number.setdefault(step_of(event), n)
        run = simulate(events[: n + 1], streams, waits)
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
        for step in dict.fromkeys(missing):
            position = number[step]
            stream = streams.index(events[position].site.stream)
            if known[stream] < run.time[position]:
                known = _join(known, run.end[position])
                signal = Signal(step.part, step.piece)
                waits = {**waits, moment: (*waits.get(moment, ()), signal)}
    return _without_redundant(events, streams, needs, waits)


def _fork(events: Sequence[Event], streams: tuple[str, ...]) -> Waits:
    """Streams that begin inside the loop are forked before it, not once per pass."""
    first: dict[str, Site] = {}
    for event in events:
        first.setdefault(event.site.stream, event.site)
    return {
        Moment(None, name): (Signal(BEFORE_STEP.part, 0),)
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
