"""Binding to plan: issue order, waits, frees, and both programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.plan.allocations import place_allocations
from dynaflow_dsl.plan.buffers import count_buffers, weight_order
from dynaflow_dsl.plan.build import write_out
from dynaflow_dsl.plan.checks import (
    idle_orders,
    issue_order,
    overlap_claims,
    overwritten,
)
from dynaflow_dsl.plan.clocks import find_waits, simulate
from dynaflow_dsl.plan.dependences import effect_order, needs
from dynaflow_dsl.plan.draft import Draft, results_of, uses_of
from dynaflow_dsl.plan.issue import in_program_order, scheduled
from dynaflow_dsl.plan.lifetimes import place_frees
from dynaflow_dsl.plan.model import Plan, Program
from dynaflow_dsl.plan.names import WHOLE, spell
from dynaflow_dsl.plan.passes import lay_out
from dynaflow_dsl.plan.tensor_names import trusted_faults
from dynaflow_dsl.plan.timeline import Event, PlannedWindow, Site, Timeline
from dynaflow_dsl.plan.variables import VariableTable, make_variables
from dynaflow_dsl.resolve.model import MAIN, Schedule


def plan(binding: Binding) -> Result[Plan]:
    """Decide the order of everything and where each wait and each free stands.

    Finds steps that are issued before what they read or come after, windows whose steps
    cannot overlap, results that would be replaced too early, orders that have no
    effect, and trusted kernels that do not take their part's tensors by name.
    """
    schedule = binding.schedule
    streams = (MAIN, *(stream.name for stream in schedule.streams))
    words = spell(binding, streams)
    table = make_variables(binding, words.pieces, streams, words)
    timeline = _timeline(table, scheduled(table))
    # One set of buffers serves both programs; in program order one buffer would do.
    buffers = count_buffers(timeline.run(), table)
    step, found = _program(table, streams, timeline, buffers)
    if step is None:
        return Result(None, tuple(found))
    table = make_variables(binding, WHOLE, (MAIN,), words)
    timeline = _timeline(table, in_program_order(table))
    sequential, problems = _program(table, (MAIN,), timeline, buffers)
    if sequential is None:
        return Result(None, tuple(problems))
    found = list(trusted_faults(binding, sequential))
    if found:
        return Result(None, tuple(found))
    return Result(Plan(binding, streams, step, sequential, buffers))


def _timeline(
    table: VariableTable, windows: Sequence[Sequence[PlannedWindow]]
) -> Timeline:
    span = table.binding.schedule.sections[-1].timeline_span
    return lay_out(windows, span, table)


def _program(
    table: VariableTable,
    streams: tuple[str, ...],
    timeline: Timeline,
    buffers: Mapping[str, int],
) -> tuple[Program | None, list[Diagnostic]]:
    events = timeline.run()
    effects, weights = effect_order(table), weight_order(table, buffers)
    wanted = [needs(event, table, effects, weights) for event in events]
    found = issue_order(events, wanted, _may_lag(table.binding.schedule))
    if found:
        return None, found
    writes = [results_of(event, table) for event in events]
    found = overwritten(events, wanted, writes)
    if found:
        return None, found
    waits = find_waits(events, streams, wanted)
    run = simulate(events, streams, waits)
    found = list(overlap_claims(run, wanted)) + list(
        idle_orders(events, streams, wanted)
    )
    if found:
        return None, found
    allocations = place_allocations(run, table)
    uses = uses_of(events, wanted, table, allocations)
    frees = place_frees(run, uses, _outer(table))
    first: dict[Site, Event] = {}
    for event in events:
        first.setdefault(event.site, event)
    draft = Draft(table, timeline, wanted, run, waits, allocations, frees, first)
    return write_out(draft), []


def _may_lag(schedule: Schedule) -> frozenset[str]:
    """The parts that an `order` repeats: a `stagger` shifts its stages by itself."""
    return frozenset(
        part.name
        for section in schedule.sections
        if section.each is not None and section.timeline == "order"
        for part in section.parts
    )


def _outer(table: VariableTable) -> frozenset[str]:
    """Names of values that exist once and start no carried variable."""
    carried = set(table.bases) | {
        name for value, name in table.whole.items() if value in table.aliases.values()
    }
    return frozenset(name for name in table.whole.values() if name not in carried)
