"""What ran on a device when, by the steps of a schedule.

A profiler sees kernels and no schedule, and in a replayed graph nothing else either. So
each step is put between two marks: kernels of our own, told apart by the size of their
grid, that lie on the step's stream like everything in between. What is between the two
on their stream is the step's, however it got onto the device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynaflow_dsl.runtime.device_clock import MARK
from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.watch import Step

# What names of kernels of NCCL have.
NCCL = "nccl"

# Categories of a profiler's events that occupy a device, and what is called so here.
ON_DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, a copy, or on the CPU an operator; times in microseconds.

    `lane` is the stream as the profiler numbers it, on the CPU the thread; `grid` the
    number of blocks. `kind` is `kernel`, `copy`, `fill` or `operator`.
    """

    name: str
    begin: float
    end: float
    lane: int = 0
    grid: int = 0
    kind: str = "kernel"


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step in one run, with its work in order of time.

    `number` is that of the step in order of issue.
    """

    step: Step
    run: int
    begin: float
    end: float
    work: tuple[Work, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All runs of a step; `outside` is work that lies in no step, or in several."""

    steps: tuple[TimedStep, ...]
    outside: tuple[Work, ...]


def device_timeline(
    events: Iterable[Mapping[str, Any]],
    steps: Sequence[Step],
    collectives: Collection[int] = (),
) -> Timeline:
    """The timeline of a profiler's events, with `steps` in order of issue.

    NCCL runs its kernels on streams of its own, which a step's stream waits for: they
    belong to the one of the steps `collectives` that they lie in. Raises LoadError
    (DFS808) where the profiler saw no marks.
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
        spans += [
            (step, run, first, last, number) for run, (first, last) in enumerate(pairs)
        ]
    spans.sort(key=lambda span: span[2].begin)
    # A graph's branches may be numbered otherwise than the streams it was made of.
    told_apart = all(first.lane == last.lane for _, _, first, last, _ in spans)
    inside: list[list[Work]] = [[] for _ in spans]
    outside = []
    for one in work:
        if MARK in one.name:
            continue
        around = [
            place
            for place, (_, _, first, last, _) in enumerate(spans)
            if first.begin <= one.begin and one.end <= last.end
        ]
        same = [
            place
            for place in around
            if one.lane in (spans[place][2].lane, spans[place][3].lane)
        ]
        owner = same if same or told_apart else around
        if not same and NCCL in one.name:
            owner = [place for place in around if spans[place][4] in collectives]
        if len(owner) == 1:
            inside[owner[0]].append(one)
        else:
            outside.append(one)
    return Timeline(
        tuple(
            TimedStep(
                step, run, first.end, max(last.begin, first.end), tuple(own), number
            )
            for (step, run, first, last, number), own in zip(spans, inside, strict=True)
        ),
        tuple(outside),
    )


def host_timeline(
    events: Iterable[Mapping[str, Any]],
    steps: Sequence[Step],
    prefix: str,
    work_prefix: str,
    apart: str = "",
) -> Timeline:
    """The timeline of a CPU, where ranges named by a prefix and a number are steps.

    Those of `prefix` lie on the thread that calls a step. What it hands to another
    thread, as it does with collectives, has a range of `work_prefix` there, and is the
    step's from its beginning to its end. Nothing is told of what lies in a range named
    `apart`, on any thread.
    """
    called: dict[int, list[Work]] = {}
    worked: dict[int, list[Work]] = {}
    operators, left_out = [], []
    for event in events:
        if event.get("ph") != "X":
            continue
        name = str(event.get("name", ""))
        is_operator = event.get("cat") == "cpu_op"
        is_apart = bool(apart) and name == apart
        if not (is_operator or is_apart or name.startswith((prefix, work_prefix))):
            continue
        begin = float(event["ts"])
        end = begin + float(event.get("dur", 0.0))
        one = Work(name, begin, end, int(event.get("tid", 0)), kind="operator")
        if is_apart:
            left_out.append((begin, end))
        elif is_operator:
            operators.append(one)
        elif name.startswith(prefix):
            called.setdefault(int(name.removeprefix(prefix)), []).append(one)
        else:
            worked.setdefault(int(name.removeprefix(work_prefix)), []).append(one)
    if left_out:
        operators = [
            one
            for one in operators
            if not any(start <= one.begin < stop for start, stop in left_out)
        ]
    timed = []
    taken: set[int] = set()
    for number, step in enumerate(steps):
        for run, span in enumerate(_spans(called, worked, number)):
            inside = [
                one
                for one in operators
                if span.lane == one.lane
                and span.begin <= one.begin
                and one.end <= span.end
            ]
            taken.update(map(id, inside))
            timed.append(
                TimedStep(step, run, span.begin, span.end, tuple(inside), number)
            )
    timed.sort(key=lambda one: one.begin)
    outside = tuple(one for one in operators if id(one) not in taken)
    return Timeline(tuple(timed), outside)


def _spans(
    called: Mapping[int, Sequence[Work]],
    worked: Mapping[int, Sequence[Work]],
    number: int,
) -> list[Work]:
    """When a step was under way, by run: where it was called, or on another thread."""
    spans = sorted(called.get(number, ()), key=lambda one: one.begin)
    others = sorted(worked.get(number, ()), key=lambda one: one.begin)
    if len(others) != len(spans):
        return spans  # of several parts, or of none
    return [
        other if other.lane != span.lane else span
        for span, other in zip(spans, others, strict=True)
    ]


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
            ON_DEVICE[event["cat"]],
        )
