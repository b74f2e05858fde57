"""Plan to proved plan: order, completeness, overlap claims, lifetimes, joins."""

from __future__ import annotations

from collections.abc import Iterator

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result, Severity, has_errors
from dynaflow_dsl.plan.model import Hold, Plan, Program
from dynaflow_dsl.prove.execute import Execution
from dynaflow_dsl.prove.machine import Fault, Machine, Step
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.resolve.model import Step as ScheduledStep


def prove(plan: Plan) -> Result[ProvedPlan]:
    """Run both programs on an abstract machine over all iterations, checking all rules.

    Finds DFS701 (a read or write that is not ordered), DFS702 (memory that goes back
    too early), DFS302 (steps of a window that something orders) and, as information,
    DFS703 (memory kept until the join).
    """
    binding = plan.binding
    pieces = binding.schedule.pieces
    found: list[Diagnostic] = []
    scheduled = Execution(binding, plan.streams, pieces)
    machine = scheduled.run(plan.step)
    found += _faults(machine.faults)
    found += _incomplete(scheduled, pieces)
    overlaps, claims = _claims(plan, machine)
    found += claims
    sequential = Execution(binding, (MAIN,), 1)
    found += _faults(sequential.run(plan.sequential).faults)
    found += _incomplete(sequential, 1)
    held = tuple(_held(plan.step))
    found += [_held_to_the_join(plan, name) for name in held]
    if has_errors(found):
        return Result(None, tuple(found))
    return Result(ProvedPlan(plan, overlaps, held), tuple(found))


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
    numbered: range | tuple[None] = range(pieces) if pieces > 1 else (None,)
    for part in binding.parts:
        for i in range(len(binding.iterations)):
            for piece in numbered:
                count = execution.calls[Step(part.name, i, piece)]
                if count != 1:
                    yield Diagnostic(
                        "DFS900",
                        f"{part.name} runs {count} times in layer {i}, piece {piece}",
                        Label(binding.schedule.sections[0].timeline_span),
                    )


def _claims(plan: Plan, machine: Machine) -> tuple[int, list[Diagnostic]]:
    """Every pair of steps in different runs of a window, in every iteration."""
    schedule = plan.binding.schedule
    count = len(plan.binding.iterations)
    proved, broken = 0, dict[tuple[int, int], Diagnostic]()

    def step(item: ScheduledStep, i: int) -> Step:
        piece = item.piece if schedule.pieces > 1 else None
        return Step(item.part, i - 1 if item.previous else i, piece)

    def say(item: ScheduledStep) -> str:
        index = f"[{item.piece}]" if schedule.pieces > 1 else ""
        return f"{'prev.' if item.previous else ''}{item.part}{index}"

    for window in schedule.sections[0].windows:
        runs = window.runs
        pairs = [
            (left, right)
            for k, run in enumerate(runs)
            for other in runs[k + 1 :]
            for left in run.steps
            for right in other.steps
        ]
        for left, right in pairs:
            # One iteration more than there are: the last `prev` steps stand alone.
            for i in range(count + 1):
                first, second = step(left, i), step(right, i)
                if first not in machine.instants or second not in machine.instants:
                    continue
                if _ordered(machine, first, second) or _ordered(machine, second, first):
                    key = (left.span.start, right.span.start)
                    broken.setdefault(
                        key,
                        Diagnostic(
                            "DFS302",
                            f"{say(left)} and {say(right)} cannot overlap: something "
                            "orders them",
                            Label(left.span),
                            (Label(right.span, "claimed to run at the same time"),),
                        ),
                    )
                else:
                    proved += 1
    return proved, list(broken.values())


def _ordered(machine: Machine, earlier: Step, later: Step) -> bool:
    instant = machine.instants[earlier]
    return machine.starts[later][instant.stream] >= instant.time


def _held(program: Program) -> Iterator[str]:
    # What is held once, before the loop, does not grow with the layers.
    for block in program.loop:
        for statement in block.statements:
            if isinstance(statement, Hold):
                yield from statement.variables


def _held_to_the_join(plan: Plan, name: str) -> Diagnostic:
    each = plan.binding.schedule.sections[0]
    return Diagnostic(
        "DFS703",
        f"{name} is kept in every layer until the end of the step",
        Label(each.timeline_span, "no stream waits for its last reader"),
        helps=("run a step of its stream after its last reader, or read it on main",),
        severity=Severity.INFO,
    )
