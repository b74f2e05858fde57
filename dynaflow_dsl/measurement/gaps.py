"""When a stream runs nothing, and which step of another stream it waits for then.

What a step waits for is known from its issue: the events between streams, transitively.
Of those that it may have waited for, it really waited for the one that ended last. A
gap is cut at that end: what comes after it is a launch, or the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynaflow_dsl.measurement.intervals import Interval, union
from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.timeline import TimedStep


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a stream runs nothing, in one run; times in microseconds.

    `step` is what the stream does next; None at the end of the run. `awaited` is the
    step of another stream whose end the gap ends with; None where the stream waits for
    no step. `inside` says that the gap lies in `step`, between kernels.
    """

    stream: str
    run: int
    begin: float
    end: float
    step: TimedStep | None
    awaited: TimedStep | None
    inside: bool = False

    @property
    def length(self) -> float:
        """How long it is."""
        return self.end - self.begin


def runs_of(profile: Profile) -> dict[int, tuple[TimedStep, ...]]:
    """The steps of each run, in order of time."""
    found: dict[int, list[TimedStep]] = {}
    for one in sorted(profile.timeline.steps, key=lambda one: (one.begin, one.number)):
        found.setdefault(one.run, []).append(one)
    return {run: tuple(found[run]) for run in sorted(found)}


def extent(steps: Sequence[TimedStep]) -> Interval:
    """From the beginning of the first step of a run to the end of the last one."""
    return min(one.begin for one in steps), max(one.end for one in steps)


def busy(profile: Profile, steps: Sequence[TimedStep], stream: str) -> list[Interval]:
    """When a stream runs something: kernels and copies, on the CPU whole steps.

    Of collectives whose kernels nobody saw, such as flags that streams wait for, it is
    the whole step as well.
    """
    own = (one for one in steps if one.step.stream == stream)
    return list(union(each for one in own for each in _occupied(profile, one)))


def find_gaps(profile: Profile, stream: str) -> Iterator[Gap]:
    """The gaps of a stream in each run, in order of time."""
    for run, steps in runs_of(profile).items():
        yield from _gaps(profile, run, steps, stream)


def _gaps(
    profile: Profile, run: int, steps: Sequence[TimedStep], stream: str
) -> Iterator[Gap]:
    by_number = {one.number: one for one in steps}
    own = [one for one in steps if one.step.stream == stream]
    cursor, last = extent(steps)
    # What the stream waits for before it runs something again.
    awaited: set[int] = set()
    for one in own:
        awaited |= set(_awaited(profile, one.number))
        inside = False
        for begin, end in union(_occupied(profile, one)):
            if begin > cursor:
                candidates = [by_number[each] for each in awaited if each in by_number]
                if inside:
                    yield Gap(stream, run, cursor, begin, one, None, inside=True)
                else:
                    yield from _cut(stream, run, (cursor, begin), one, candidates)
            cursor = max(cursor, end)
            awaited.clear()
            inside = True
    if last > cursor:
        # Main is joined with all streams at the end; another one has nothing to do.
        is_main = stream == profile.streams[0]
        others = [one for one in steps if is_main and one.step.stream != stream]
        yield from _cut(stream, run, (cursor, last), None, others)


def _cut(
    stream: str,
    run: int,
    whole: Interval,
    step: TimedStep | None,
    candidates: Sequence[TimedStep],
) -> Iterator[Gap]:
    """The wait for the last of some steps to end, and what comes after it."""
    begin, end = whole
    late = max(candidates, key=lambda one: one.end, default=None)
    if late is not None and late.end > begin:
        until = min(late.end, end)
        yield Gap(stream, run, begin, until, step, late)
        begin = until
    if end > begin:
        yield Gap(stream, run, begin, end, step, None)


def _awaited(profile: Profile, number: int) -> tuple[int, ...]:
    return profile.awaited[number] if number < len(profile.awaited) else ()


def _occupied(profile: Profile, one: TimedStep) -> list[Interval]:
    if profile.on_host or (not one.work and one.number in profile.meets):
        return [(one.begin, one.end)]
    return [(work.begin, work.end) for work in one.work]
