"""Plan to proved plan: order, completeness, overlap claims, lifetimes, joins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result, Severity, has_errors
from dynaflow_dsl.plan.model import Hold, Loop, Plan, Program
from dynaflow_dsl.prove.execute import Execution
from dynaflow_dsl.prove.machine import Fault, Machine, Step
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.resolve.model import Step as ScheduledStep
from dynaflow_dsl.resolve.steps import step_label


def prove(plan: Plan) -> Result[ProvedPlan]:
    """Run both programs on an abstract machine over all iterations, checking all rules.

    Finds DFS701 (a read or write that is not ordered), DFS702 (memory that goes back
    too early), DFS302 (steps of a window that something orders) and, as information,
    DFS703 (memory kept until the join).
    """
    binding = plan.binding
    pieces = binding.schedule.pieces
    found: list[Diagnostic] = []
    scheduled = Execution(binding, plan.streams, pieces, plan.buffers)
    machine = scheduled.run(plan.step)
    found += _faults(machine.faults)
    found += _incomplete(scheduled, pieces)
    overlaps, claims = _claims(plan, machine)
    found += claims
    sequential = Execution(binding, (MAIN,), 1, plan.buffers)
    found += _faults(sequential.run(plan.sequential).faults)
    found += _incomplete(sequential, 1)
    found += _disobeyed(plan, machine)
    held = dict(_held(plan.step))
    found += [_held_to_the_join(plan, name, section) for name, section in held.items()]
    if has_errors(found):
        return Result(None, tuple(found))
    return Result(ProvedPlan(plan, overlaps, tuple(held)), tuple(found))


def _faults(faults: list[Fault]) -> Iterator[Diagnostic]:
    seen: set[tuple[str, str]] = set()
    for fault in faults:
        if (fault.kind, fault.message) in seen:
            continue
        seen.add((fault.kind, fault.message))
        code = {"race": "DFS701", "freed": "DFS702"}.get(fault.kind, "DFS900")
        yield Diagnostic(
            code,
            fault.message,
            Label(fault.span) if fault.span else None,
            (Label(fault.other, "the other step"),) if fault.other else (),
        )


def _incomplete(execution: Execution, pieces: int) -> Iterator[Diagnostic]:
    binding = execution.binding
    for part in binding.inner:
        joined = pieces == 1 or part.name in binding.joined
        numbered: range | tuple[None] = (None,) if joined else range(pieces)
        for i in range(len(part.instances)):
            for piece in numbered:
                count = execution.calls[Step(part.name, i, piece)]
                if count != 1:
                    yield Diagnostic(
                        "DFS900",
                        f"{part.name} runs {count} times in layer {i}, piece {piece}",
                        Label(execution.span),
                    )


def _disobeyed(plan: Plan, machine: Machine) -> Iterator[Diagnostic]:
    """Every `after` of the schedule, in every iteration."""
    pieces = plan.binding.schedule.pieces
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
                    if here not in machine.instants or there not in machine.instants:
                        continue
                    if not _ordered(machine, there, here):
                        yield Diagnostic(
                            "DFS701",
                            f"{step.part} does not come after {said.part}, as the "
                            "schedule says",
                            Label(step.span),
                            (Label(said.span, "the other step"),),
                        )
                        return


def _run_of(item: ScheduledStep, p: int, pieces: int) -> Step:
    """The step that stands in a timeline, in one pass over it."""
    piece = item.piece if pieces > 1 else None
    return Step(item.part, p - 1 if item.previous else p, piece)


def _claims(plan: Plan, machine: Machine) -> tuple[int, list[Diagnostic]]:
    """Every pair of steps in different runs of a window, in every iteration."""
    pieces = plan.binding.schedule.pieces
    proved, broken = 0, dict[tuple[int, int], Diagnostic]()
    for section in plan.binding.sections:
        for window in section.section.windows:
            pairs = [
                (left, right)
                for run, other in combinations(window.runs, 2)
                for left in run.steps
                for right in other.steps
            ]
            for left, right in pairs:
                # One pass more than there are iterations: `prev` steps stand alone.
                for p in range(len(section.iterations) + 1):
                    first, second = (_run_of(s, p, pieces) for s in (left, right))
                    if not {first, second} <= machine.instants.keys():
                        continue
                    if _ordered(machine, first, second) or _ordered(
                        machine, second, first
                    ):
                        key = (left.span.start, right.span.start)
                        broken.setdefault(key, _something_orders(left, right, plan))
                    else:
                        proved += 1
    return proved, list(broken.values())


def _something_orders(
    left: ScheduledStep, right: ScheduledStep, plan: Plan
) -> Diagnostic:
    names = plan.binding.schedule.piece_names
    return Diagnostic(
        "DFS302",
        f"{step_label(left, names)} and {step_label(right, names)} cannot overlap: "
        "something orders them",
        Label(left.span),
        (Label(right.span, "claimed to run at the same time"),),
    )


def _ordered(machine: Machine, earlier: Step, later: Step) -> bool:
    instant = machine.instants[earlier]
    return machine.starts[later][instant.stream] >= instant.time


def _held(program: Program) -> Iterator[tuple[str, int]]:
    """Names that are held in loops, with the section of each."""
    # What is held once, before a loop, does not grow with the layers.
    for segment in program.segments:
        if isinstance(segment, Loop):
            for block in segment.blocks:
                for statement in block.statements:
                    if isinstance(statement, Hold):
                        yield from ((n, segment.section) for n in statement.variables)


def _held_to_the_join(plan: Plan, name: str, section: int) -> Diagnostic:
    timeline = plan.binding.sections[section].section.timeline_span
    return Diagnostic(
        "DFS703",
        f"{name} is kept in every layer until the end of the step",
        Label(timeline, "no stream waits for its last reader"),
        helps=("run a step of its stream after its last reader, or read it on main",),
        severity=Severity.INFO,
    )
