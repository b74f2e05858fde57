"""A profile in some lines: how busy each stream is, and what main waits for.

Equal waits of layers and runs are one line: a schedule treats its layers alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from dynaflow_dsl.measurement.gaps import Gap, busy, extent, find_gaps, runs_of
from dynaflow_dsl.measurement.intervals import common, length
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
    has begun to wait.
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


@dataclass(frozen=True, slots=True)
class Pauses:
    """Microseconds of a step in which main runs nothing and waits for no step."""

    total: float
    count: int


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What runs of a step have in common: medians over runs, in microseconds.

    `waits` are those of main, the longest first. `between` are its pauses before steps,
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
    extents = {run: extent(steps) for run, steps in runs.items()}
    lengths = {run: end - begin for run, (begin, end) in extents.items()}
    uses = []
    for stream in profile.streams:
        taken = {run: length(busy(profile, runs[run], stream)) for run in runs}
        uses.append(
            StreamUse(
                stream,
                median(taken.values()),
                median(lengths[run] - taken[run] for run in runs),
            )
        )
    gaps = list(find_gaps(profile, profile.streams[0]))
    pauses = [gap for gap in gaps if gap.awaited is None]
    return StepSummary(
        step=median(lengths.values()),
        least=min(lengths.values()),
        most=max(lengths.values()),
        runs=len(runs),
        streams=tuple(uses),
        waits=_waits(profile, gaps, len(runs)),
        between=_pauses([gap for gap in pauses if not gap.inside], len(runs)),
        inside=_pauses([gap for gap in pauses if gap.inside], len(runs)),
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
    place = awaited.label, awaited.stream, awaited.line
    if step is None:
        return _Kind(*place, "", 0, None)
    later = None
    if step.layer is not None and awaited.layer is not None:
        later = step.layer - awaited.layer
    return _Kind(*place, step.label, step.line, later)


def _waits(profile: Profile, gaps: Iterable[Gap], runs: int) -> tuple[Wait, ...]:
    main = {
        run: busy(profile, steps, profile.streams[0])
        for run, steps in runs_of(profile).items()
    }
    alike: dict[_Kind, list[tuple[Gap, TimedStep]]] = {}
    for gap in gaps:
        if gap.awaited is not None:
            kind = _kind(gap.awaited.step, gap.step.step if gap.step else None)
            alike.setdefault(kind, []).append((gap, gap.awaited))
    found = []
    for kind, pairs in alike.items():
        layers = {one.step.layer for _, one in pairs if one.step.layer is not None}
        total = sum(gap.length for gap, _ in pairs) / runs
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
                count=round(len(pairs) / runs),
                total=total,
                takes=median(one.end - one.begin for _, one in pairs),
                beside=median(
                    common(main[gap.run], [(one.begin, one.end)]) for gap, one in pairs
                ),
                after=median(max(0.0, one.begin - gap.begin) for gap, one in pairs),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.total))


def _pauses(gaps: Sequence[Gap], runs: int) -> Pauses:
    return Pauses(sum(gap.length for gap in gaps) / runs, round(len(gaps) / runs))
