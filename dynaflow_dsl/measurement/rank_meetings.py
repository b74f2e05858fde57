"""Where ranks meet: how long the first one waits for the last one in collectives.

No rank ends a collective before all have begun it. What lies between the first rank's
beginning and the last one's is not communication, and no link makes it shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.timeline import TimedStep
from dynaflow_dsl.runtime.watch import Step


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective of `ranks`, over layers and runs; medians in microseconds.

    `first_waits` is from the beginning on the first rank to that on the last one,
    `moves` from there to the end on all of them. `last` is the rank that began last
    most often, in `times` of `count`.
    """

    step: str
    line: int
    layers: tuple[int, ...]
    ranks: tuple[int, ...]
    first_waits: float
    moves: float
    last: int
    times: int
    count: int


@dataclass(frozen=True, slots=True)
class Impossible:
    """A collective that `ended` on a rank before it `began` on another, as their clocks
    say: they are at least `apart` microseconds apart.
    """

    step: str
    ended: int
    began: int
    apart: float


@dataclass(frozen=True, slots=True)
class Meetings:
    """All collectives of some profiles, and the worst that contradicts their clocks."""

    meetings: tuple[Meeting, ...]
    impossible: Impossible | None


@dataclass(frozen=True, slots=True)
class _Met:
    """One collective in one run: the step, and its beginning and end by rank."""

    step: Step
    begins: Mapping[int, float]
    ends: Mapping[int, float]

    @property
    def last(self) -> int:
        """The rank that began last."""
        return max(self.begins, key=lambda rank: self.begins[rank])

    @property
    def first_ended(self) -> int:
        """The rank that ended first."""
        return min(self.ends, key=lambda rank: self.ends[rank])


def find_meetings(
    profiles: Mapping[int, Profile], shifts: Mapping[int, float]
) -> Meetings:
    """The collectives of the profiles of ranks, in the order of a step.

    `shifts` in microseconds make the times of each rank those of one clock. Ranks have
    run the same steps, with the same numbers.
    """
    alike: dict[tuple[str, int, tuple[int, ...]], list[_Met]] = {}
    for (_, _, ranks), timed in _together(profiles).items():
        if set(timed) != set(ranks):
            continue
        met = _Met(
            next(iter(timed.values())).step,
            {rank: one.begin + shifts[rank] for rank, one in timed.items()},
            {rank: one.end + shifts[rank] for rank, one in timed.items()},
        )
        alike.setdefault((met.step.label, met.step.line, ranks), []).append(met)
    found = [
        _meeting(label, line, ranks, all_met)
        for (label, line, ranks), all_met in alike.items()
    ]
    return Meetings(
        tuple(found), _impossible([met for each in alike.values() for met in each])
    )


def _together(
    profiles: Mapping[int, Profile],
) -> dict[tuple[int, int, tuple[int, ...]], dict[int, TimedStep]]:
    """By run, step and ranks that meet in it, what each of them has of it."""
    found: dict[tuple[int, int, tuple[int, ...]], dict[int, TimedStep]] = {}
    for rank, profile in profiles.items():
        for one in profile.timeline.steps:
            if rank in (ranks := profile.meets.get(one.number, ())):
                found.setdefault((one.run, one.number, ranks), {})[rank] = one
    return dict(sorted(found.items(), key=lambda item: item[0]))


def _meeting(label: str, line: int, ranks: tuple[int, ...], met: list[_Met]) -> Meeting:
    ((last, times),) = Counter(one.last for one in met).most_common(1)
    layers = {one.step.layer for one in met if one.step.layer is not None}
    return Meeting(
        label,
        line,
        tuple(sorted(layers)),
        ranks,
        first_waits=median(
            max(one.begins.values()) - min(one.begins.values()) for one in met
        ),
        moves=median(
            max(0.0, max(one.ends.values()) - max(one.begins.values())) for one in met
        ),
        last=last,
        times=times,
        count=len(met),
    )


def _impossible(met: list[_Met]) -> Impossible | None:
    def apart(one: _Met) -> float:
        return one.begins[one.last] - one.ends[one.first_ended]

    worst = max(met, key=apart, default=None)
    if worst is None or apart(worst) <= 0.0:
        return None
    return Impossible(str(worst.step), worst.first_ended, worst.last, apart(worst))
