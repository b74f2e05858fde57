"""A profile in some numbers: how busy each stream is, and what main waits for.

Equal waits of layers are one: a schedule treats its layers alike. All numbers are of
one run, whose length is the median: so times of waits add up to that in which main is
idle, as medians of each would not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from dynaflow_dsl.measurement.gaps import Gap, busy, extent, find_gaps, runs_of
from dynaflow_dsl.measurement.intervals import Interval, common, length
from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.timeline import TimedStep
from dynaflow_dsl.runtime.watch import Step


@dataclass(frozen=True, slots=True)
class StreamUse:
    """Microseconds of a step in which a stream runs something, and none."""

    stream: str
    busy: float
    idle: float


@dataclass(frozen=True, slots=True)
class Wait:
    """What main waits for in a step, in several layers alike; times in microseconds.

    `awaited` is the step that it waits for, on `stream`, at `line` of the schedule file
    (0 where none is known) in `layers`; `before` the step of main that then begins,
    empty where the whole step ends, `later` layers after the awaited one. `each` is one
    such wait, `count` how many a step has, and `total` all of them. The awaited step
    `takes` some time, of which it is `beside` work of main; it begins `after` main
    has begun to wait, in most layers since `behind` was still running on its stream.
    """

    awaited: str
    stream: str
    line: int
    layers: tuple[int, ...]
    before: str
    before_line: int
    later: int | None
    each: float
    count: int
    total: float
    takes: float
    beside: float
    after: float
    behind: str


@dataclass(frozen=True, slots=True)
class Pauses:
    """Microseconds of a step in which main runs nothing and waits for no step."""

    total: float
    count: int


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The run of median length, which is `step`, in microseconds.

    `least` and `most` are the lengths of the shortest and the longest of all `runs`.
    `waits` are those of main, the longest first; `between` are its pauses before steps,
    `inside` those between kernels of one step.
    """

    step: float
    least: float
    most: float
    runs: int
    streams: tuple[StreamUse, ...]
    waits: tuple[Wait, ...]
    between: Pauses
    inside: Pauses


def summarise(profile: Profile) -> StepSummary | None:
    """The summary of a profile; None where no step ran."""
    runs = runs_of(profile)
    if not runs:
        return None
    lengths = {}
    for run, steps in runs.items():
        begin, end = extent(steps)
        lengths[run] = end - begin
    middle = sorted(lengths, key=lambda run: lengths[run])[(len(runs) - 1) // 2]
    whole = lengths[middle]
    taken = {name: busy(profile, runs[middle], name) for name in profile.streams}
    main = profile.streams[0]
    gaps = [gap for gap in find_gaps(profile, main) if gap.run == middle]
    pauses = [gap for gap in gaps if gap.awaited is None]
    return StepSummary(
        step=whole,
        least=min(lengths.values()),
        most=max(lengths.values()),
        runs=len(runs),
        streams=tuple(
            StreamUse(name, length(each), whole - length(each))
            for name, each in taken.items()
        ),
        waits=_waits(gaps, taken[main], runs[middle]),
        between=_pauses([gap for gap in pauses if not gap.inside]),
        inside=_pauses([gap for gap in pauses if gap.inside]),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """What waits have in common that are told as one; see Wait."""

    awaited: str
    stream: str
    line: int
    before: str
    before_line: int
    later: int | None


def _kind(awaited: Step, step: Step | None) -> _Kind:
    place = _called(awaited), awaited.stream, awaited.line
    if step is None:
        return _Kind(*place, "", 0, None)
    later = None
    if step.layer is not None and awaited.layer is not None:
        later = step.layer - awaited.layer
    return _Kind(*place, _called(step), step.line, later)


def _called(step: Step) -> str:
    """The label of a step; the module's text is told apart."""
    return step.label if step.part else f"`{step.label}`"


def _waits(
    gaps: Iterable[Gap], main: Sequence[Interval], steps: Sequence[TimedStep]
) -> tuple[Wait, ...]:
    """The waits among the gaps of main in a run of some steps; `main` is its work."""
    alike: dict[_Kind, list[tuple[Gap, TimedStep]]] = {}
    for gap in gaps:
        if gap.awaited is not None:
            kind = _kind(gap.awaited.step, gap.step.step if gap.step else None)
            alike.setdefault(kind, []).append((gap, gap.awaited))
    found = []
    for kind, pairs in alike.items():
        layers = {one.step.layer for _, one in pairs if one.step.layer is not None}
        found.append(
            Wait(
                kind.awaited,
                kind.stream,
                kind.line,
                tuple(sorted(layers)),
                kind.before,
                kind.before_line,
                kind.later,
                each=median(gap.length for gap, _ in pairs),
                count=len(pairs),
                total=sum(gap.length for gap, _ in pairs),
                takes=median(one.end - one.begin for _, one in pairs),
                beside=median(common(main, [(one.begin, one.end)]) for _, one in pairs),
                after=median(max(0.0, one.begin - gap.begin) for gap, one in pairs),
                behind=_most([_behind(gap, one, steps) for gap, one in pairs]),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.total))


def _behind(gap: Gap, awaited: TimedStep, steps: Sequence[TimedStep]) -> str:
    """The step that kept the stream of an awaited one when main began to wait."""
    before = [
        one
        for one in steps
        if one.step.stream == awaited.step.stream
        and gap.begin < one.end
        and one.begin < awaited.begin
    ]
    last = max(before, key=lambda one: one.begin, default=None)
    return _called(last.step) if last is not None else ""


def _most(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0]


def _pauses(gaps: Sequence[Gap]) -> Pauses:
    return Pauses(sum(gap.length for gap in gaps), len(gaps))
