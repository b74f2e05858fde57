"""What a schedule says of its steps, against the clocks of a run."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.prove.machine import Machine, Step
from dynaflow_dsl.prove.memory import Access
from dynaflow_dsl.prove.paths import chain_of_waits
from dynaflow_dsl.resolve.model import MAIN, Stream, Window
from dynaflow_dsl.resolve.model import Step as ScheduledStep
from dynaflow_dsl.resolve.steps import step_label


def disobeyed(plan: Plan, machine: Machine) -> Iterator[Diagnostic]:
    """Every `after` of the schedule, in every iteration."""
    pieces = plan.binding.schedule.piece_names
    for section in plan.binding.sections:
        count = len(section.iterations)
        steps = (
            step
            for window in section.section.windows
            for run in window.runs
            for step in run.steps
        )
        for step in steps:
            # One pass more than there are iterations: `prev` steps stand alone there.
            for p in range(count + 1):
                here = _run_of(step, p, pieces)
                for said in step.after:
                    there = _run_of(said, p, pieces)
                    if not {here, there} <= machine.accesses.keys():
                        continue
                    if not ordered(machine, there, here):
                        yield Diagnostic(
                            "DFS701",
                            f"{step_label(step, pieces)} does not come after "
                            f"{step_label(said, pieces)}, as the schedule says",
                            Label(step.span),
                            (Label(said.span, "the other step"),),
                        )
                        return


def claims(plan: Plan, machine: Machine) -> tuple[int, list[Diagnostic]]:
    """Every pair of steps in different runs of a window, in every iteration.

    How many run side by side, and what is said of the others: DFS302 where something
    orders them, DFS323 where they never meet.
    """
    pieces = plan.binding.schedule.piece_names
    proved, found = 0, list[Diagnostic]()
    for section in plan.binding.sections:
        for window in section.section.windows:
            for left, right in _pairs(window):
                here, broken, way = 0, False, ""
                # One pass more than there are iterations: `prev` steps stand alone.
                for p in range(len(section.iterations) + 1):
                    first, second = (_run_of(s, p, pieces) for s in (left, right))
                    if not {first, second} <= machine.accesses.keys():
                        continue
                    here += 1
                    if ordered(machine, second, first):
                        first, second = second, first
                    if not ordered(machine, first, second):
                        proved += 1
                    elif not broken:
                        broken = True
                        way = chain_of_waits(machine, first, second)
                if broken:
                    found.append(_something_orders(left, right, pieces, way))
                elif here == 0 and section.section.timeline == "order":
                    # Where a `stagger` puts its stages is no claim of the file's.
                    found.append(_never_meet(left, right, pieces))
    return proved, found


def idle_streams(plan: Plan, machine: Machine) -> Iterator[Diagnostic]:
    """DFS320: streams beside which nothing of another stream ever runs.

    Of a step's neighbours on another stream only one can be the first that it does not
    follow; if that one follows the step, all later ones do.
    """
    steps: dict[str, list[Step]] = defaultdict(list)
    for step, access in machine.accesses.items():
        steps[access.stream].append(step)
    times = {
        stream: [machine.accesses[step].time for step in mine]
        for stream, mine in steps.items()
    }
    for stream in plan.binding.schedule.streams:
        mine = steps.get(stream.name, [])
        others = [other for other in steps if other != stream.name]
        beside = any(
            _has_neighbour(machine, step, other, steps[other], times[other])
            for step in mine
            for other in others
        )
        if mine and not beside:
            yield _alone(plan, stream, machine.accesses[mine[0]])


def _has_neighbour(
    machine: Machine, step: Step, other: str, theirs: list[Step], times: list[int]
) -> bool:
    place = bisect_right(times, machine.starts[step][other])
    if place == len(theirs):
        return False
    mine = machine.accesses[step]
    return machine.starts[theirs[place]][mine.stream] < mine.time


def ordered(machine: Machine, earlier: Step, later: Step) -> bool:
    """Whether a step has surely finished when another one starts."""
    access = machine.accesses[earlier]
    return machine.starts[later][access.stream] >= access.time


def _pairs(window: Window) -> Iterator[tuple[ScheduledStep, ScheduledStep]]:
    for run, other in combinations(window.runs, 2):
        for left in run.steps:
            for right in other.steps:
                yield left, right


def _run_of(item: ScheduledStep, p: int, pieces: Sequence[str]) -> Step:
    """The step that stands in a timeline, in one pass over it."""
    piece = item.piece if len(pieces) > 1 else None
    return Step(item.part, p - 1 if item.previous else p, piece)


def _something_orders(
    left: ScheduledStep, right: ScheduledStep, pieces: Sequence[str], way: str
) -> Diagnostic:
    return Diagnostic(
        "DFS302",
        f"{step_label(left, pieces)} and {step_label(right, pieces)} cannot overlap: "
        "something orders them",
        Label(left.span),
        (Label(right.span, "claimed to run at the same time"),),
        notes=(way,) if way else (),
    )


def _never_meet(
    left: ScheduledStep, right: ScheduledStep, pieces: Sequence[str]
) -> Diagnostic:
    return Diagnostic(
        "DFS323",
        f"{step_label(left, pieces)} and {step_label(right, pieces)} never overlap: "
        "there is one iteration alone",
        Label(left.span, "of this iteration"),
        (Label(right.span, "of the one before, which there is none"),),
        helps=(
            "check it with a model of more layers",
            "leave out 'prev.' for a model of one layer",
        ),
        severity=Severity.WARNING,
    )


def _alone(plan: Plan, stream: Stream, first: Access) -> Diagnostic:
    others: tuple[Label, ...] = ()
    if first.span is not None:
        others = (Label(first.span, f"{first.label} is its first step"),)
    ways = [f"leave it out, and run its parts on {MAIN}"]
    if plan.binding.schedule.split is None:
        ways.append(
            "put something beside it that neither reads it nor is read by it, or "
            "'split' the step into microbatches"
        )
    else:
        ways.append("put steps of another microbatch beside its own, as 'stagger' does")
    return Diagnostic(
        "DFS320",
        f"nothing ever runs beside the stream '{stream.name}'",
        Label(
            stream.span,
            "each of its steps waits for all that was issued before, and all that "
            "comes after waits for it",
        ),
        others,
        helps=tuple(ways),
        severity=Severity.WARNING,
    )
