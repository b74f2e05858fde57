"""Profiles as a trace that Perfetto and Chrome open: a track per stream.

The format is the JSON of Chrome's trace viewer: complete events ("X") with times in
microseconds, and metadata ("M") that names processes and threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.timeline import TimedStep, Work

OUTSIDE = "outside of steps"


def trace_document(profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """The trace of several profiles by title, a process each, on one time axis."""
    events: list[dict[str, Any]] = []
    starts = [_start(profile) for profile in profiles.values()]
    for number, (title, profile) in enumerate(profiles.items(), start=1):
        events += _process(number, f"{title} on {profile.device}", profile)
        events += _events(number, profile, min(starts, default=0.0))
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _start(profile: Profile) -> float:
    begins = [one.begin for one in profile.timeline.steps]
    return min([*begins, *(one.begin for one in profile.timeline.outside)], default=0.0)


def _process(number: int, name: str, profile: Profile) -> list[dict[str, Any]]:
    tracks = [*profile.streams]
    if profile.timeline.outside:
        tracks.append(OUTSIDE)
    found = [_named(number, 0, "process_name", name)]
    for track, stream in enumerate(tracks, start=1):
        found.append(_named(number, track, "thread_name", stream))
        found.append(
            {
                "ph": "M",
                "pid": number,
                "tid": track,
                "name": "thread_sort_index",
                "args": {"sort_index": track},
            }
        )
    return found


def _named(process: int, track: int, kind: str, name: str) -> dict[str, Any]:
    return {
        "ph": "M",
        "pid": process,
        "tid": track,
        "name": kind,
        "args": {"name": name},
    }


def _events(process: int, profile: Profile, start: float) -> list[dict[str, Any]]:
    tracks = {name: track for track, name in enumerate(profile.streams, start=1)}
    found = []
    for timed in profile.timeline.steps:
        track = tracks[timed.step.stream]
        described = _described(timed)
        whole = Work(str(timed.step), timed.begin, timed.end)
        found.append(_event(process, track, "step", whole, start, described))
        found += [
            _event(process, track, "work", one, start, described) for one in timed.work
        ]
    found += [
        _event(process, len(tracks) + 1, "work", one, start, {})
        for one in profile.timeline.outside
    ]
    return found


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
