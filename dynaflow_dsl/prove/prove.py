"""Plan to proved plan: order, completeness, overlap claims, lifetimes, joins."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result, Severity, has_errors
from dynaflow_dsl.plan.model import Hold, Loop, Plan, Program
from dynaflow_dsl.prove.claims import (
    apart_in_graphs,
    beside_undeclared,
    claims,
    disobeyed,
    idle_streams,
)
from dynaflow_dsl.prove.execute import Execution
from dynaflow_dsl.prove.machine import Machine, Step
from dynaflow_dsl.prove.messages import diagnostics_of
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.prove.ranks import parting_ranks
from dynaflow_dsl.resolve.model import MAIN


def prove(plan: Plan, equal: Collection[str] = ()) -> Result[ProvedPlan]:
    """Run both programs on an abstract machine over all iterations, checking all rules.

    `equal` are sizes of a step that all ranks see alike. Finds DFS701 (a read or write
    that is not ordered as in the model), DFS702 (memory that goes back too early),
    DFS302 (steps of a window that something orders), DFS404 (what may run beside a
    kernel that declares no effects), DFS705 (what one step may use at a time, used by
    two at once), DFS706 (ranks that run other collectives than each other) and DFS707
    (a step that reads something else than in the model). Warns of windows whose steps
    never meet (DFS323), or not in captured steps (DFS324), and of streams beside which
    nothing runs (DFS320), and tells of memory that is kept until the join (DFS703).
    """
    binding = plan.binding
    pieces = binding.schedule.pieces
    found: list[Diagnostic] = []
    scheduled = Execution(binding, plan.streams, pieces, plan.buffers)
    machine = scheduled.run(plan.step)
    found += diagnostics_of(machine.faults, {each.part for each in binding.kernels})
    found += _incomplete(scheduled, pieces)
    overlaps, said = claims(plan, machine)
    found += said
    sequential = Execution(binding, (MAIN,), 1, plan.buffers)
    found += diagnostics_of(sequential.run(plan.sequential).faults)
    found += _incomplete(sequential, 1)
    found += disobeyed(plan, machine)
    found += beside_undeclared(plan, machine)
    found += parting_ranks(binding, machine, sequential.machine, equal)
    if not has_errors(found):
        found += idle_streams(plan, machine)
        found += _apart_in_graphs(plan, machine)
    held = dict(_held(plan.step))
    found += [_held_to_the_join(plan, name, section) for name, section in held.items()]
    if has_errors(found):
        return Result(None, tuple(found))
    return Result(ProvedPlan(plan, overlaps, tuple(held)), tuple(found))


def _apart_in_graphs(plan: Plan, machine: Machine) -> Iterator[Diagnostic]:
    captures = plan.binding.schedule.captures
    if captures and captures[0].pieces and machine.host_waits:
        pieces = plan.binding.schedule.pieces
        captured = Execution(
            plan.binding, plan.streams, pieces, plan.buffers, in_graphs=True
        )
        yield from apart_in_graphs(plan, machine, captured.run(plan.step))


def _incomplete(execution: Execution, pieces: int) -> Iterator[Diagnostic]:
    binding = execution.binding
    outside = {part.name for part in (binding.before, binding.after) if part}
    for part in binding.everything:
        whole = pieces == 1 or part.name in binding.joined | outside
        numbered: range | tuple[None] = (None,) if whole else range(pieces)
        for i in range(len(part.instances)):
            for piece in numbered:
                count = execution.calls[Step(part.name, i, piece)]
                if count != 1:
                    yield Diagnostic(
                        "DFS707",
                        f"{part.name} runs {_times(count)} in layer {i}"
                        + (f" for piece {piece}" if piece is not None else ""),
                        Label(execution.span),
                    )


def _times(count: int) -> str:
    return "never" if count == 0 else f"{count} times"


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
