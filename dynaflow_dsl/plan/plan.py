"""Binding to plan: issue order, waits, frees, and both programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dynaflow_dsl.bind.model import Binding, BoundPart, Carried, Produced
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.plan.build import write_out
from dynaflow_dsl.plan.checks import issue_order, overlap_claims, overwritten
from dynaflow_dsl.plan.clocks import find_waits, simulate
from dynaflow_dsl.plan.dependences import effect_order, needs, roles_of
from dynaflow_dsl.plan.draft import Draft, results_of, uses_of
from dynaflow_dsl.plan.lifetimes import place_frees
from dynaflow_dsl.plan.model import Plan, Program
from dynaflow_dsl.plan.names import Words, piece_label, spell
from dynaflow_dsl.plan.operands import carried_initials, make_variables
from dynaflow_dsl.plan.timeline import PlannedStep, PlannedWindow, lay_out
from dynaflow_dsl.resolve.model import MAIN, Run, Window

# The loop repeats itself after two passes per stream; `prove` runs the whole length.
SIMULATED_ITERATIONS = 7


def plan(binding: Binding) -> Result[Plan]:
    """Decide the order of everything and where each wait and each free stands.

    Finds steps that are issued before what they read, windows whose steps cannot
    overlap, and results that would be replaced too early.
    """
    schedule = binding.schedule
    pieces = schedule.pieces
    streams = (MAIN, *(stream.name for stream in schedule.streams))
    words = spell(binding, streams)
    step, found = _program(binding, pieces, streams, words, _windows(binding))
    if step is None:
        return Result(None, tuple(found))
    declared = {part.name: part.name_span for part in schedule.parts}
    in_order = PlannedWindow(
        tuple(
            PlannedStep(part.name, 0, False, MAIN, 0, part.name, declared[part.name])
            for part in _program_order(binding)
        ),
        schedule.sections[0].span,
    )
    sequential, problems = _program(binding, 1, (MAIN,), words, [in_order])
    if sequential is None:
        return Result(None, tuple(problems))
    return Result(Plan(binding, streams, step, sequential), tuple(found))


def _program(
    binding: Binding,
    pieces: int,
    streams: tuple[str, ...],
    words: Words,
    windows: Sequence[PlannedWindow],
) -> tuple[Program | None, list[Diagnostic]]:
    schedule = binding.schedule
    table = make_variables(binding, pieces, streams, words)
    iterations = len(binding.iterations)
    simulated = _simulated(binding)
    timeline = lay_out(
        windows,
        iterations,
        schedule.sections[0].timeline_span,
        merges=bool(table.merged),
    )
    events = timeline.run(simulated)
    effects = effect_order(binding, pieces, simulated)
    wanted = [needs(event, simulated, table, effects) for event in events]
    found = issue_order(events, wanted)
    if found:
        return None, found
    writes = [results_of(event.site, table) for event in events]
    found = overwritten(events, wanted, writes)
    if found:
        return None, found
    waits = find_waits(events, streams, wanted)
    run = simulate(events, streams, waits)
    found = list(overlap_claims(run, wanted))
    if found:
        return None, found
    carried = {table.whole.get(value) for value in carried_initials(binding).values()}
    outer = frozenset(name for name in table.whole.values() if name not in carried)
    frees = place_frees(run, uses_of(events, wanted, table), outer)
    draft = Draft(table, timeline, wanted, run, waits, frees, iterations)
    return write_out(draft), []


def _program_order(binding: Binding) -> list[BoundPart]:
    """Parts by data; readers of what the layer before left come before its next maker.

    A name holds one layer's value: were it replaced first, nothing could read the old
    one. Where the data leaves no such order, program order stays, and DFS308 tells.
    """
    parts = {part.name: part for part in binding.parts}
    by_data: dict[str, set[str]] = {name: set() for name in parts}
    by_name: dict[str, set[str]] = {name: set() for name in parts}
    for name, part in parts.items():
        for role in part.roles:
            match role:
                case Produced(maker, _):
                    by_data[name].add(maker)
                case Carried(maker, _, _) if maker != name:
                    by_name[maker].add(name)
                case _:
                    pass
    for wanted in ({n: by_data[n] | by_name[n] for n in parts}, by_data):
        order = _sorted(wanted)
        if order is not None:
            return [parts[name] for name in order]
    return list(binding.parts)


def _sorted(needs: Mapping[str, set[str]]) -> list[str] | None:
    """Names after all that they need, else in the order given; None for a ring."""
    order: list[str] = []
    waiting = list(needs)
    while waiting:
        ready = next((n for n in waiting if needs[n] <= set(order)), None)
        if ready is None:
            return None
        order.append(ready)
        waiting.remove(ready)
    return order


def _simulated(binding: Binding) -> int:
    """How many iterations show everything that the loop has to keep.

    All of them where some layers share memory that one of them writes and others do
    not touch: such a pair may stand anywhere.
    """
    iterations = len(binding.iterations)
    touching: dict[str, set[int]] = defaultdict(set)
    written: set[str] = set()
    for part in binding.parts:
        for i, instance in enumerate(part.instances):
            for name, writes in instance.touched:
                touching[name].add(i)
                if writes:
                    written.add(name)
    if any(1 < len(touching[name]) < iterations for name in written):
        return iterations
    return min(iterations, SIMULATED_ITERATIONS)


def _windows(binding: Binding) -> list[PlannedWindow]:
    """The schedule's windows; runs that read a value before runs that replace it."""
    pieces = binding.schedule.pieces
    return [
        PlannedWindow(
            tuple(
                PlannedStep(
                    step.part,
                    step.piece,
                    step.previous,
                    run.stream,
                    number,
                    _label(step.part, step.piece, pieces, previous=step.previous),
                    step.span,
                )
                for number, run in _issue_order(window, binding)
                for step in run.steps
            ),
            window.span,
        )
        for window in binding.schedule.sections[0].windows
    ]


def _label(part: str, piece: int, pieces: int, *, previous: bool) -> str:
    prefix = "prev." if previous else ""
    return prefix + piece_label(part, piece, pieces)


def _issue_order(window: Window, binding: Binding) -> list[tuple[int, Run]]:
    waiting = list(enumerate(window.runs))
    order: list[tuple[int, Run]] = []
    while waiting:
        ready = next(
            (
                entry
                for entry in waiting
                if not any(
                    _reads_what_is_replaced(other, entry[1], binding)
                    for number, other in waiting
                    if number != entry[0]
                )
            ),
            waiting[0],
        )
        order.append(ready)
        waiting.remove(ready)
    return order


def _reads_what_is_replaced(reader: Run, writer: Run, binding: Binding) -> bool:
    """Whether `reader` needs the result that the one `writer` makes replaces."""
    for made in writer.steps:
        for step in reader.steps:
            if step.piece != made.piece:
                continue
            for role in roles_of(step.part, binding):
                match role:
                    case Produced(part, _):
                        age = int(step.previous)
                    case Carried(part, _, _):
                        age = int(step.previous) + 1
                    case _:
                        continue
                if part == made.part and age == int(made.previous) + 1:
                    return True
    return False
