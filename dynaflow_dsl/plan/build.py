"""A timeline with its waits and frees, written out as statements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.plan.clocks import START, Moment, Signal
from dynaflow_dsl.plan.dependences import bound
from dynaflow_dsl.plan.draft import Draft, results, results_of
from dynaflow_dsl.plan.lifetimes import Place
from dynaflow_dsl.plan.model import (
    Block,
    Call,
    Free,
    Hold,
    Join,
    Layer,
    Merge,
    Operand,
    Program,
    Record,
    Return,
    Slices,
    Statement,
    Variable,
    Wait,
)
from dynaflow_dsl.plan.names import BEFORE_DONE, piece_label, piece_name
from dynaflow_dsl.plan.names import START as START_EVENT
from dynaflow_dsl.plan.operands import (
    VariableTable,
    after_operand,
    input_operand,
    operand,
    stream_of,
)
from dynaflow_dsl.plan.timeline import Site


def write_out(draft: Draft) -> Program:
    """The blocks of a program."""
    recorded, awaited_early = _recorded(draft)
    timeline = draft.timeline
    last_layer = Layer(draft.iterations - 1)
    return Program(
        (
            _before(draft, recorded, awaited_early),
            *_windows(timeline.first, Layer(0), draft, recorded),
        ),
        tuple(_windows(timeline.loop, Layer(0, in_loop=True), draft, recorded)),
        (
            *_windows(timeline.last, last_layer, draft, recorded),
            _after(draft),
        ),
        timeline.start,
    )


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
        wait(Moment(site, site.stream))
        latest[Signal(site.part, site.piece)] = site
        if site.part == BEFORE:
            for stream in draft.run.streams:
                wait(Moment(None, stream))
    return frozenset(found), tuple(early)


def event_name(signal: Signal, draft_table: VariableTable) -> str:
    """The Python variable of an event."""
    if signal.part == BEFORE:
        return BEFORE_DONE if draft_table.binding.before is not None else START_EVENT
    return f"{piece_name(signal.part, signal.piece, draft_table.pieces)}_done"


def _before(
    draft: Draft, recorded: frozenset[Site], awaited_early: Sequence[Signal]
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
                tuple(after_operand(role, table) for role in part.roles),
                results_of(site, table),
                BEFORE,
                site.span,
            )
        )
    if site in recorded:
        statements.append(Record(event_name(START, table), "main"))
    for signal in awaited_early:
        label = piece_label(signal.part, signal.piece, table.pieces)
        statements.append(Record(event_name(signal, table), "main", label))
    statements += _ends(draft, Place(site, "done"))
    for value, name in table.sliced.items():
        statements.append(_slices(value, name, table))
    for name, value in table.aliases.items():
        if value not in table.sliced or table.sliced[value] != name:
            statements.append(_slices(value, name, table))
    for stream in draft.run.streams:
        for signal in draft.waits.get(Moment(None, stream), ()):
            statements.append(Wait(stream, event_name(signal, table), stream, ()))
    return Block(BEFORE, tuple(statements))


def _slices(value: str, name: str, table: VariableTable) -> Slices:
    whole: Operand = (
        input_operand(table.inputs[value])
        if value in table.inputs
        else Variable(table.whole[value])
    )
    targets = tuple(piece_name(name, k, table.pieces) for k in range(table.pieces))
    return Slices(targets, whole)


def _windows(
    sites: Sequence[Site], layer: Layer, draft: Draft, recorded: frozenset[Site]
) -> list[Block]:
    blocks = []
    for _, group in groupby(sites, key=lambda site: site.window):
        in_window = sorted(group, key=lambda site: site.run)
        title = " | ".join(
            ", ".join(site.label for site in run)
            for _, run in groupby(in_window, key=lambda site: site.run)
        )
        issued = [site for site in sites if site.window == in_window[0].window]
        statements = [s for site in issued for s in _site(site, layer, draft, recorded)]
        blocks.append(Block(title, tuple(statements), in_window[0].span))
    return blocks


def _site(
    site: Site, layer: Layer, draft: Draft, recorded: frozenset[Site]
) -> list[Statement]:
    table = draft.table
    here = Layer(layer.offset - 1, True) if site.previous and layer.in_loop else layer
    statements: list[Statement] = list(_waits(site, draft))
    statements += _ends(draft, Place(site, "ready"))
    part = bound(site.part, table.binding)
    statements.append(
        Call(
            site.part,
            here,
            site.piece if draft.pieces > 1 else None,
            site.stream,
            tuple(operand(role, here, site.piece, table) for role in part.roles),
            results_of(site, table),
            site.label,
            site.span,
        )
    )
    if site in recorded:
        name = event_name(Signal(site.part, site.piece), table)
        statements.append(Record(name, site.stream))
    statements += _ends(draft, Place(site, "done"))
    return statements


def _ends(draft: Draft, place: Place) -> list[Statement]:
    statements: list[Statement] = []
    if names := draft.frees.held.get(place):
        statements.append(Hold(tuple(names)))
    if names := draft.frees.at.get(place):
        statements.append(Free(tuple(names)))
    return statements


def _waits(site: Site, draft: Draft) -> list[Wait]:
    """The waits of a site, each with the variables that make it necessary."""
    signals = draft.waits.get(Moment(site, site.stream), ())
    reads: dict[Signal, dict[str, None]] = {signal: {} for signal in signals}
    for n, event in enumerate(draft.run.events):
        if event.site != site:
            continue
        for need in draft.needs[n]:
            signal = Signal(need.step.part, need.step.piece)
            if signal in reads and need.variable:
                reads[signal][need.variable] = None
    return [
        Wait(site.stream, event_name(s, draft.table), site.label, tuple(reads[s]))
        for s in signals
    ]


def _after(draft: Draft) -> Block:
    table, timeline = draft.table, draft.timeline
    binding = table.binding
    statements: list[Statement] = []
    if timeline.merge is not None:
        statements += _waits(timeline.merge, draft)
        statements += _ends(draft, Place(timeline.merge, "ready"))
        for (part, k), target in table.merged.items():
            value = bound(part, binding).instances[-1].outputs[k]
            pieces = tuple(table.output(part, k, j) for j in range(table.pieces))
            if value in binding.axes and len(pieces) > 1:
                statements.append(Merge(target, pieces, binding.axes[value]))
            elif value in binding.results and stream_of(part, binding) != "main":
                # What is returned is made on main: a copy of what another stream made.
                statements.append(Merge(target, pieces[:1], 0))
            else:
                statements.append(Slices((target,), Variable(pieces[0])))
        statements += _ends(draft, Place(timeline.merge, "done"))
    statements += _waits(timeline.after, draft)
    if binding.after is not None:
        statements.append(
            Call(
                AFTER,
                Layer(0),
                None,
                "main",
                tuple(after_operand(role, table) for role in binding.after.roles),
                results_of(timeline.after, table),
                AFTER,
                timeline.after.span,
            )
        )
    if len(draft.run.streams) > 1:
        statements.append(Join())
    statements.append(Return(results(table)))
    return Block(AFTER, tuple(statements))
