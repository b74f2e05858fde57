"""What ran on a device when, by the steps of a schedule.

A profiler sees kernels and no schedule, and in a replayed graph nothing else either. So
each step is put between two marks: kernels of our own, told apart by the size of their
grid, that lie on the step's stream like everything in between. What is between the two
on their stream is the step's, however it got onto the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynaflow_dsl.runtime.device_clock import MARK
from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.watch import Step

# Categories of a profiler's events that occupy a device.
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, a copy, or on the CPU an operator; times in microseconds.

    `lane` is the stream as the profiler numbers it, `grid` the number of blocks.
    """

    name: str
    begin: float
    end: float
    lane: int = 0
    grid: int = 0


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step in one run, with its work in order of time."""

    step: Step
    run: int
    begin: float
    end: float
    work: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All runs of a step; `outside` is work that lies in no step, or in several."""

    steps: tuple[TimedStep, ...]
    outside: tuple[Work, ...]


def device_timeline(
    events: Iterable[Mapping[str, Any]], steps: Sequence[Step]
) -> Timeline:
    """The timeline of a profiler's events, with `steps` in order of issue.

    Raises LoadError (DFS808) where the profiler saw no marks.
    """
    work = sorted(_device_work(events), key=lambda one: one.begin)
    marks = [one for one in work if MARK in one.name]
    if not marks:
        raise LoadError(
            "DFS808",
            "the profiler of PyTorch recorded no kernels: it needs CUPTI, which comes "
            "with PyTorch's builds for CUDA and may be refused to a container.",
        )
    found: dict[int, list[Work]] = {}
    for mark in marks:
        found.setdefault(mark.grid - 1, []).append(mark)
    spans = []
    for number, step in enumerate(steps):
        pairs = zip(
            found.get(2 * number, ()), found.get(2 * number + 1, ()), strict=False
        )
        spans += [(step, run, first, last) for run, (first, last) in enumerate(pairs)]
    spans.sort(key=lambda span: span[2].begin)
    # A graph's branches may be numbered otherwise than the streams it was made of.
    told_apart = all(first.lane == last.lane for _, _, first, last in spans)
    inside: list[list[Work]] = [[] for _ in spans]
    outside = []
    for one in work:
        if MARK in one.name:
            continue
        around = [
            place
            for place, (_, _, first, last) in enumerate(spans)
            if first.begin <= one.begin and one.end <= last.end
        ]
        same = [
            place
            for place in around
            if one.lane in (spans[place][2].lane, spans[place][3].lane)
        ]
        owner = same if same or told_apart else around
        if len(owner) == 1:
            inside[owner[0]].append(one)
        else:
            outside.append(one)
    return Timeline(
        tuple(
            TimedStep(step, run, first.end, max(last.begin, first.end), tuple(own))
            for (step, run, first, last), own in zip(spans, inside, strict=True)
        ),
        tuple(outside),
    )


def host_timeline(
    events: Iterable[Mapping[str, Any]], steps: Sequence[Step], prefix: str
) -> Timeline:
    """The timeline of a CPU, where ranges named `prefix` and a number are steps."""
    ranges: dict[int, list[Work]] = {}
    operators = []
    for event in events:
        if event.get("ph") != "X":
            continue
        name = str(event.get("name", ""))
        begin = float(event["ts"])
        one = Work(name, begin, begin + float(event.get("dur", 0.0)))
        if name.startswith(prefix):
            ranges.setdefault(int(name.removeprefix(prefix)), []).append(one)
        elif event.get("cat") == "cpu_op":
            operators.append(one)
    timed, outside = [], list(operators)
    for number, step in enumerate(steps):
        own = sorted(ranges.get(number, ()), key=lambda one: one.begin)
        for run, span in enumerate(own):
            inside = [
                one
                for one in operators
                if span.begin <= one.begin and one.end <= span.end
            ]
            taken = set(map(id, inside))
            outside = [one for one in outside if id(one) not in taken]
            timed.append(TimedStep(step, run, span.begin, span.end, tuple(inside)))
    timed.sort(key=lambda one: one.begin)
    return Timeline(tuple(timed), tuple(outside))


def _device_work(events: Iterable[Mapping[str, Any]]) -> Iterable[Work]:
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in ON_DEVICE:
            continue
        details = event.get("args", {})
        begin = float(event["ts"])
        grid = details.get("grid", [0])
        yield Work(
            str(event["name"]),
            begin,
            begin + float(event.get("dur", 0.0)),
            int(details.get("stream", event.get("tid", 0))),
            int(grid[0]) if grid else 0,
        )
