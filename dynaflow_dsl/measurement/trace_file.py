"""Profiles as a trace that Perfetto and Chrome open: a track per stream.

The format is the JSON of Chrome's trace viewer: complete events ("X") with times in
microseconds, and metadata ("M") that names processes and threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynaflow_dsl.measurement.gaps import find_gaps
from dynaflow_dsl.measurement.intervals import union, without
from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.timeline import TimedStep, Work

OUTSIDE = "outside of steps"
NANO_IN_MICRO = 1000


@dataclass(frozen=True, slots=True)
class Shown:
    """A profile as a process of a trace, named `title`.

    `ahead` is how far, in nanoseconds, the clock that its times are of is ahead of the
    one that the trace is on.
    """

    title: str
    profile: Profile
    ahead: int = 0


def trace_document(shown: Sequence[Shown]) -> dict[str, Any]:
    """The trace of several profiles, a process each, on one time axis."""
    events: list[dict[str, Any]] = []
    shifts = shifts_of(shown)
    begins = [
        begin + shift
        for each, shift in zip(shown, shifts, strict=True)
        if (begin := _begin(each.profile)) is not None
    ]
    start = min(begins, default=0.0)
    for number, (each, shift) in enumerate(zip(shown, shifts, strict=True), start=1):
        name = f"{each.title} on {each.profile.device}"
        events += _process(number, name, each.profile)
        events += _events(number, each.profile, start - shift)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def shifts_of(shown: Sequence[Shown]) -> list[float]:
    """What to add to times of each profile, in microseconds, for one time axis."""
    zeros = [each.profile.origin - each.ahead for each in shown]
    # Whole nanoseconds: a time since 1970 does not fit into a float that well.
    first = min(zeros, default=0)
    return [(zero - first) / NANO_IN_MICRO for zero in zeros]


def _begin(profile: Profile) -> float | None:
    begins = [one.begin for one in profile.timeline.steps]
    begins += [one.begin for one in profile.timeline.outside]
    return min(begins, default=None)


def _process(number: int, name: str, profile: Profile) -> list[dict[str, Any]]:
    tracks = [*profile.streams]
    if profile.timeline.outside:
        tracks.append(OUTSIDE)
    found = [
        _meta(number, 0, "process_name", {"name": name}),
        _meta(number, 0, "process_sort_index", {"sort_index": number}),
    ]
    for track, stream in enumerate(tracks, start=1):
        found.append(_meta(number, track, "thread_name", {"name": stream}))
        found.append(_meta(number, track, "thread_sort_index", {"sort_index": track}))
    return found


def _meta(process: int, track: int, kind: str, said: object) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": said}


def _events(process: int, profile: Profile, start: float) -> list[dict[str, Any]]:
    tracks = {name: track for track, name in enumerate(profile.streams, start=1)}
    found = []
    for timed in profile.timeline.steps:
        track = tracks[timed.step.stream]
        described = _described(timed)
        ranks = profile.meets.get(timed.number, ())
        if ranks:
            described["ranks"] = list(ranks)
        whole = Work(str(timed.step), timed.begin, timed.end)
        found.append(_event(process, track, "step", whole, start, described))
        found += [
            _event(process, track, "work", one, start, {**described, "kind": one.kind})
            for one in timed.work
        ]
    for name, track in tracks.items():
        found += [
            _event(process, track, "wait", one, start, described)
            for one, described in _waits(profile, name)
        ]
    found += [
        _event(process, len(tracks) + 1, "work", one, start, {"kind": one.kind})
        for one in profile.timeline.outside
    ]
    return found


def _waits(profile: Profile, stream: str) -> Iterator[tuple[Work, dict[str, Any]]]:
    """Gaps in which a stream waits for a step of another one, between its ranges."""
    ranges = list(
        union(
            (one.begin, one.end)
            for one in profile.timeline.steps
            if one.step.stream == stream
        )
    )
    for gap in find_gaps(profile, stream):
        if gap.awaited is None:
            continue
        name = f"waits for {gap.awaited.step}"
        described = {
            **_described(gap.awaited),
            "stream": gap.awaited.step.stream,
            "before": str(gap.step.step) if gap.step is not None else "the end",
        }
        for begin, end in without((gap.begin, gap.end), ranges):
            yield Work(name, begin, end), described


def _described(timed: TimedStep) -> dict[str, Any]:
    step = timed.step
    described: dict[str, Any] = {
        "step": str(step),
        "part": step.part,
        "microbatch": step.piece,
        "layer": step.layer,
        "line": step.line or None,
        "run": timed.run,
    }
    return {key: value for key, value in described.items() if value not in (None, "")}


def _event(
    process: int,
    track: int,
    category: str,
    work: Work,
    start: float,
    described: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": process,
        "tid": track,
        "cat": category,
        "name": work.name,
        "ts": round(work.begin - start, 3),
        "dur": round(max(work.end - work.begin, 0.0), 3),
        "args": dict(described),
    }


def assigned(profiles: Sequence[Profile]) -> tuple[int, int]:
    """How much work lies in a step, and how much there is."""
    inside = sum(len(one.work) for each in profiles for one in each.timeline.steps)
    return inside, inside + sum(len(each.timeline.outside) for each in profiles)
