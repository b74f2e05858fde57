"""What a schedule says of its steps, against the clocks of a run."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from dynaflow_dsl.bind.model import BoundSection
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.prove.machine import Machine, Step
from dynaflow_dsl.prove.memory import Access
from dynaflow_dsl.prove.messages import REPORT
from dynaflow_dsl.prove.paths import chain_of_waits
from dynaflow_dsl.resolve.model import MAIN, Stream, Window
from dynaflow_dsl.resolve.model import Step as ScheduledStep
from dynaflow_dsl.resolve.steps import step_label
from dynaflow_dsl.source import Span


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
                    access = machine.accesses[there]
                    if machine.starts[here][access.stream] < access.time:
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
    for section, left, right in _claimed(plan):
        met = _passes(section, left, right, machine, pieces)
        proved += met.count(None)
        broken = next((pair for pair in met if pair is not None), None)
        if broken is not None:
            found.append(_something_orders(left, right, pieces, broken, machine))
        elif not met and section.section.timeline == "order":
            # Where a `stagger` puts its stages is no claim of the file's.
            found.append(_never_meet(left, right, pieces))
    return proved, found


def apart_in_graphs(
    plan: Plan, machine: Machine, in_graphs: Machine
) -> Iterator[Diagnostic]:
    """DFS324: steps of a window that overlap, but not where the step is captured in
    pieces: one of them runs between two graphs."""
    pieces = plan.binding.schedule.piece_names
    for section, left, right in _claimed(plan):
        free = _passes(section, left, right, machine, pieces)
        met = _passes(section, left, right, in_graphs, pieces)
        if not any(free) and met and all(met):
            yield _between_graphs(plan, left, right, in_graphs)


def _claimed(plan: Plan) -> Iterator[tuple[BoundSection, ScheduledStep, ScheduledStep]]:
    """The pairs of steps that windows claim."""
    for section in plan.binding.sections:
        for window in section.section.windows:
            for left, right in _pairs(window):
                yield section, left, right


def _passes(
    section: BoundSection,
    left: ScheduledStep,
    right: ScheduledStep,
    machine: Machine,
    pieces: Sequence[str],
) -> list[tuple[Step, Step] | None]:
    """For each pass in which both steps run, the two in their order; None without."""
    found: list[tuple[Step, Step] | None] = []
    # One pass more than there are iterations: `prev` steps stand alone there.
    for p in range(len(section.iterations) + 1):
        first, second = (_run_of(s, p, pieces) for s in (left, right))
        if not {first, second} <= machine.accesses.keys():
            continue
        if ordered(machine, second, first):
            first, second = second, first
        found.append((first, second) if ordered(machine, first, second) else None)
    return found


def idle_streams(plan: Plan, machine: Machine) -> Iterator[Diagnostic]:
    """DFS320: streams beside which nothing of another stream ever runs.

    Of a step's neighbours on another stream only one can be the first that it does not
    follow; if that one follows the step, all later ones do.
    """
    steps, times = _by_stream(machine)
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


def beside_undeclared(plan: Plan, machine: Machine) -> Iterator[Diagnostic]:
    """DFS404: steps beside a kernel of which nobody says what it writes, also where no
    window puts them there. The host's waits are no order.

    On another stream they are neighbours: those from the first that the kernel does not
    follow to the last that does not follow it.
    """
    undeclared = {each.part: each for each in plan.binding.kernels if not each.declared}
    if not undeclared:
        return
    steps, times = _by_stream(machine)
    said: set[tuple[str, str]] = set()
    for step, access in machine.accesses.items():
        if step.part not in undeclared or access.span is None:
            continue
        for stream in steps.keys() - {access.stream}:
            first = bisect_right(times[stream], machine.starts[step][stream])
            for place in range(first, len(steps[stream])):
                other = steps[stream][place]
                theirs = machine.accesses[other]
                if machine.starts[other][access.stream] >= access.time:
                    break
                if theirs.span is None or (step.part, other.part) in said:
                    continue
                said.add((step.part, other.part))
                name = undeclared[step.part].via.kernel.name
                yield _beside(name, access, access.span, theirs, theirs.span)


def _beside(
    kernel: str, through: Access, place: Span, other: Access, their_place: Span
) -> Diagnostic:
    return Diagnostic(
        "DFS404",
        f"kernel '{kernel}' declares no effects, and {other.label} may run beside it",
        Label(place, f"{through.label} runs through it, on {through.stream}"),
        (Label(their_place, f"on {other.stream}, and nothing orders the two"),),
        helps=(
            "say what it writes: mutates=() in the kernel, or the names of arguments",
            f"run both on one stream: '{through.stream}' or '{other.stream}'",
        ),
    )


def _by_stream(
    machine: Machine,
) -> tuple[dict[str, list[Step]], dict[str, list[int]]]:
    """The steps of each stream in their order, and their times."""
    steps: dict[str, list[Step]] = defaultdict(list)
    for step, access in machine.accesses.items():
        steps[access.stream].append(step)
    times = {
        stream: [machine.accesses[step].time for step in mine]
        for stream, mine in steps.items()
    }
    return steps, times


def _has_neighbour(
    machine: Machine, step: Step, other: str, theirs: list[Step], times: list[int]
) -> bool:
    place = bisect_right(times, machine.begins[step][other])
    if place == len(theirs):
        return False
    mine = machine.accesses[step]
    return machine.begins[theirs[place]][mine.stream] < mine.time


def ordered(machine: Machine, earlier: Step, later: Step) -> bool:
    """Whether a step has surely finished when another one starts.

    Streams may see to that, or the host, which issues a step after a wait.
    """
    access = machine.accesses[earlier]
    return machine.begins[later][access.stream] >= access.time


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
    left: ScheduledStep,
    right: ScheduledStep,
    pieces: Sequence[str],
    broken: tuple[Step, Step],
    machine: Machine,
) -> Diagnostic:
    names = f"{step_label(left, pieces)} and {step_label(right, pieces)}"
    waited = _host_wait(machine, *broken)
    if waited is not None:
        return _host_orders(names, left, right, waited, machine, *broken)
    way = chain_of_waits(machine, *broken)
    return Diagnostic(
        "DFS302",
        f"{names} cannot overlap: something orders them",
        Label(left.span),
        (Label(right.span, "claimed to run at the same time"),),
        notes=(way,) if way else (),
        helps=(REPORT,),
    )


def _host_wait(machine: Machine, earlier: Step, later: Step) -> Step | None:
    """The step in which the host waits, where nothing else orders two others."""
    access = machine.accesses[earlier]
    if machine.starts[later][access.stream] >= access.time:
        return None
    return next(
        wait.step
        for wait in machine.host_waits
        if wait.known[access.stream] >= access.time
    )


def _host_orders(
    names: str,
    left: ScheduledStep,
    right: ScheduledStep,
    waited: Step,
    machine: Machine,
    earlier: Step,
    later: Step,
) -> Diagnostic:
    waiting, first, second = (
        machine.accesses[step].label for step in (waited, earlier, later)
    )
    until = "it" if waited == earlier else f"{first}, which comes before {waiting},"
    way = f"issue {second} above {waiting}"
    if waited == earlier:
        way = f"put {second} first in the window: '{second} | {waiting}'"
    if left.span.uses:
        # A stage of a `stagger` stands where the stagger puts it.
        way = f"write an 'order' instead, with {second} above or before {waiting}"
    return Diagnostic(
        "DFS302",
        f"{names} cannot overlap: the host waits in {waiting}",
        Label(left.span, "the host waits here" if left.part == waited.part else ""),
        (Label(right.span, "claimed to run at the same time"),),
        notes=(
            f"the host waits in {waiting} until {until} is done, and issues {second} "
            "after that",
        ),
        helps=(way,),
    )


def _between_graphs(
    plan: Plan, left: ScheduledStep, right: ScheduledStep, machine: Machine
) -> Diagnostic:
    pieces = plan.binding.schedule.piece_names
    names = f"{step_label(left, pieces)} and {step_label(right, pieces)}"
    waiting = list(dict.fromkeys(wait.step.part for wait in machine.host_waits))
    listed = ", ".join(waiting)
    captured = plan.binding.schedule.captures[0]
    return Diagnostic(
        "DFS324",
        f"{names} do not overlap in captured steps",
        Label(left.span),
        (
            Label(right.span, "claimed to run at the same time"),
            Label(captured.span, "captured in pieces"),
        ),
        notes=(
            f"the host waits in {listed}: a graph ends before that and another one "
            "begins after it, with all streams joined",
        ),
        helps=(
            f"put {listed} into windows without a '|'",
            "leave 'capture' out, if the overlap is worth more than the graphs",
        ),
        severity=Severity.WARNING,
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
