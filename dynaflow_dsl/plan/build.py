"""A timeline with its waits and frees, written out as statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, TypeAlias

from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding
from dynaflow_dsl.graph.memory import memory_order
from dynaflow_dsl.plan.allocations import targets
from dynaflow_dsl.plan.clocks import START, Moment, Signal, signal_of
from dynaflow_dsl.plan.draft import Draft, bound_by, results, results_of
from dynaflow_dsl.plan.lifetimes import Place
from dynaflow_dsl.plan.model import (
    Allocate,
    Block,
    Call,
    Free,
    Hold,
    Join,
    Layer,
    Loop,
    Merge,
    Program,
    Record,
    Return,
    Segment,
    Slices,
    Statement,
    Straight,
    Variable,
    Wait,
)
from dynaflow_dsl.plan.names import ALL_DONE, BEFORE_DONE, piece_label, piece_name
from dynaflow_dsl.plan.names import START as START_EVENT
from dynaflow_dsl.plan.operands import operands, whole_operand
from dynaflow_dsl.plan.timeline import NO_RUN, Event, Site
from dynaflow_dsl.plan.variables import VariableTable, bound
from dynaflow_dsl.resolve.model import MAIN


def write_out(draft: Draft) -> Program:
    """The segments of a program."""
    recorded, awaited_early = _recorded(draft)
    reasons = _reasons(draft)
    segments: list[Segment] = [Straight((_before(draft, recorded, awaited_early),))]
    sections = draft.table.binding.sections
    for stretch in draft.timeline.stretches:
        blocks = tuple(_windows(stretch.sites, draft, recorded, reasons))
        if stretch.loop:
            segments.append(Loop(blocks, stretch.section, stretch.start, stretch.stop))
        else:
            last = len(sections[stretch.section].iterations) - 1
            iteration = min(stretch.start, last)
            segments.append(Straight(blocks, stretch.section, iteration))
    segments.append(Straight((_after(draft, reasons),)))
    return Program(tuple(segments))


def _recorded(draft: Draft) -> tuple[frozenset[Site], tuple[Signal, ...]]:
    """Sites whose events somebody waits for, and events that are awaited before their
    first record: a loop's first pass waits for what the pass before it would do."""
    latest: dict[Signal, Site] = {}
    found: set[Site] = set()
    early: dict[Signal, None] = {}

    def wait(moment: Moment) -> None:
        for signal in draft.waits.get(moment, ()):
            if signal in latest:
                found.add(latest[signal])
            else:
                early[signal] = None

    for event in draft.run.events:
        site = event.site
        for stream in draft.run.streams:
            wait(Moment(site, stream))
        latest[signal_of(event)] = site
        if site.part == BEFORE:
            for stream in draft.run.streams:
                wait(Moment(None, stream))
    return frozenset(found), tuple(early)


@dataclass(slots=True)
class _Reason:
    """Why a site awaits an event, in the words of `Wait`."""

    reads: dict[str, None] = field(default_factory=dict)
    after: str = ""
    weights: Literal["", "reads", "fills"] = ""


# By the site and by the event that it awaits.
Reasons: TypeAlias = Mapping[Site, Mapping[Signal, _Reason]]


def _reasons(draft: Draft) -> Reasons:
    """Why the waits of each site are there, in all of its iterations."""
    found: dict[Site, dict[Signal, _Reason]] = defaultdict(dict)
    for n, event in enumerate(draft.run.events):
        mine = found[event.site]
        for need in draft.needs[n]:
            signal = Signal(need.step.part, need.step.piece)
            reason = mine.setdefault(signal, _Reason())
            if need.variable:
                reason.reads[need.read] = None
            reason.after = reason.after or need.after
            reason.weights = reason.weights or need.weights
    return found


def event_name(signal: Signal, draft_table: VariableTable) -> str:
    """The Python variable of an event."""
    if signal.part == BEFORE:
        return BEFORE_DONE if draft_table.binding.before is not None else START_EVENT
    if signal.piece is None:
        return f"{signal.part}{ALL_DONE}"
    return f"{piece_name(signal.part, signal.piece, draft_table.endings)}_done"


def _before(
    draft: Draft,
    recorded: frozenset[Site],
    awaited_early: Sequence[Signal],
) -> Block:
    table, site = draft.table, draft.timeline.before
    statements: list[Statement] = []
    part = table.binding.before
    if part is not None:
        statements.append(
            Call(
                BEFORE,
                Layer(0),
                None,
                "main",
                tuple(whole_operand(v, table) for v in part.instances[0].inputs),
                results_of(draft.run.events[0], table),
                BEFORE,
                site.span,
            )
        )
    statements += _allocated(draft, Place(site, "done"))
    if site in recorded:
        statements.append(Record(event_name(START, table), "main"))
    for signal in awaited_early:
        label = signal_label(signal, table)
        statements.append(Record(event_name(signal, table), "main", label))
    statements += _ends(draft, Place(site, "done"))
    for value, name in table.sliced.items():
        statements += _slices(value, name, table)
    for name, value in table.aliases.items():
        if value not in table.sliced or table.sliced[value] != name:
            statements += _slices(value, name, table)
    for stream in draft.run.streams:
        for signal in draft.waits.get(Moment(None, stream), ()):
            statements.append(Wait(stream, event_name(signal, table), stream, ()))
    return Block(BEFORE, tuple(statements))


def _slices(value: str, name: str, table: VariableTable) -> list[Slices]:
    whole = whole_operand(value, table)
    if name in table.whole_states:
        return [Slices((name,), whole)]
    targets = tuple(piece_name(name, k, table.endings) for k in range(table.pieces))
    if table.pieces > 1 and not table.is_cut(value):
        # The same for each piece.
        return [Slices((target,), whole) for target in targets]
    return [Slices(targets, whole)]


def signal_label(signal: Signal, table: VariableTable) -> str:
    """What an event stands for, in the words of the schedule."""
    if signal.piece is None:
        return f"{signal.part}[*]"
    return piece_label(signal.part, signal.piece, table.piece_names)


def _windows(
    sites: Sequence[Site], draft: Draft, recorded: frozenset[Site], reasons: Reasons
) -> list[Block]:
    blocks = []
    for _, group in groupby(sites, key=lambda site: site.window):
        issued = list(group)
        steps = sorted(
            (site for site in issued if site.run != NO_RUN), key=lambda site: site.run
        )
        title = " | ".join(
            ", ".join(site.label for site in run)
            for _, run in groupby(steps, key=lambda site: site.run)
        )
        statements = [
            s for site in issued for s in _site(site, draft, recorded, reasons)
        ]
        blocks.append(Block(title, tuple(statements), steps[0].span))
    return blocks


def _site(
    site: Site, draft: Draft, recorded: frozenset[Site], reasons: Reasons
) -> list[Statement]:
    table = draft.table
    # The text is the same in every pass: that of the first one.
    event = draft.first[site]
    statements: list[Statement] = list(_waits(site, draft, reasons))
    statements += _ends(draft, Place(site, "ready"))
    gathered = list(_gathered(event, table))
    statements += gathered
    statements += _allocated(draft, Place(site, "ready"))
    statements.append(
        Call(
            site.part,
            site.layer,
            site.piece if draft.pieces > 1 else None,
            site.stream,
            operands(site.part, event.iteration, site.layer, site.piece, table),
            bound_by(event, table),
            site.label,
            site.span,
            targets(event, table),
        )
    )
    statements += _allocated(draft, Place(site, "done"))
    if gathered:
        statements.append(Free(tuple(merge.target for merge in gathered)))
    if site in recorded:
        statements.append(Record(event_name(signal_of(event), table), site.stream))
    statements += _ends(draft, Place(site, "done"))
    return statements


def _allocated(draft: Draft, place: Place) -> list[Allocate]:
    return list(draft.allocations.at.get(place, {}).values())


def _gathered(event: Event, table: VariableTable) -> Iterator[Merge]:
    """The pieces that a step takes together, joined on its stream."""
    site, binding = event.site, table.binding
    if not table.is_joined(site.part):
        return
    values = bound(site.part, binding).instances[event.iteration].inputs
    for value in values:
        if value not in table.makers or table.is_whole(value):
            continue
        if value in binding.axes and value not in table.written:
            key = table.makers[value].key
            pieces = tuple(table.output(key, j) for j in range(table.pieces))
            target = table.gathered[binding.variables[key]]
            yield _joined(value, target, pieces, binding, site.stream)


def _ends(draft: Draft, place: Place) -> list[Statement]:
    statements: list[Statement] = []
    if names := draft.frees.held.get(place):
        statements.append(Hold(tuple(names)))
    if names := draft.frees.at.get(place):
        statements.append(Free(tuple(names)))
    return statements


def _waits(site: Site, draft: Draft, reasons: Reasons) -> list[Wait]:
    """The waits of a site, each with what makes it necessary.

    Other streams wait here for what the site gives anew.
    """
    found = []
    for stream in draft.run.streams:
        for signal in draft.waits.get(Moment(site, stream), ()):
            waiting = site if stream == site.stream else _later(site, stream, draft)
            reason = reasons[waiting].get(signal, _Reason())
            found.append(
                Wait(
                    stream,
                    event_name(signal, draft.table),
                    waiting.label,
                    tuple(reason.reads),
                    # What is read says more than what the schedule adds to it.
                    "" if reason.reads else reason.after,
                    reason.weights,
                    signal_label(signal, draft.table) if reason.weights else "",
                )
            )
    return found


def _later(site: Site, stream: str, draft: Draft) -> Site:
    """The step of a site's window that another stream waits for there."""
    sites = draft.timeline.stretches[site.segment - 1].sites
    return next(
        one
        for one in sites[sites.index(site) + 1 :]
        if one.window == site.window and one.stream == stream
    )


def _after(draft: Draft, reasons: Reasons) -> Block:
    table, timeline = draft.table, draft.timeline
    binding = table.binding
    statements: list[Statement] = []
    if timeline.merge is not None:
        statements += _waits(timeline.merge, draft, reasons)
        statements += _ends(draft, Place(timeline.merge, "ready"))
        for value, target in table.merged.items():
            if value not in table.written:
                statements.append(_merged(value, target, table))
        statements += _ends(draft, Place(timeline.merge, "done"))
    statements += _waits(timeline.after, draft, reasons)
    if binding.after is not None:
        inputs = binding.after.instances[0].inputs
        statements.append(
            Call(
                AFTER,
                Layer(0),
                None,
                MAIN,
                tuple(whole_operand(value, table) for value in inputs),
                results_of(draft.run.events[-1], table),
                AFTER,
                timeline.after.span,
            )
        )
    if len(draft.run.streams) > 1:
        statements.append(Join())
    statements.append(Return(results(table)))
    return Block(AFTER, tuple(statements))


def _merged(value: str, target: str, table: VariableTable) -> Statement:
    """What `after` or the caller gets of a value that parts made."""
    key = table.makers[value].key
    if table.is_whole(value):
        # What is returned is made on main: a copy of what another stream made.
        return Merge(target, (table.base(key),), 0)
    pieces = tuple(table.output(key, j) for j in range(table.pieces))
    if value in table.binding.axes:
        return _joined(value, target, pieces, table.binding, MAIN)
    return Slices((target,), Variable(pieces[0]))


def _joined(
    value: str, target: str, pieces: tuple[str, ...], binding: Binding, stream: str
) -> Merge:
    order = memory_order(binding.graph, value)
    return Merge(target, pieces, binding.axes[value], stream, order)
