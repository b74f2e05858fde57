"""A timeline with its waits and frees, written out as statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.plan.clocks import Moment, Run, Signal, Waits
from dynaflow_dsl.plan.dependences import Need, bound
from dynaflow_dsl.plan.lifetimes import Frees, Place, Uses
from dynaflow_dsl.plan.model import (
    Block,
    Call,
    Free,
    Hold,
    InputOperand,
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
from dynaflow_dsl.plan.names import piece_name
from dynaflow_dsl.plan.operands import (
    VariableTable,
    after_operand,
    input_operand,
    operand,
)
from dynaflow_dsl.plan.timeline import Event, Site, Timeline


@dataclass(frozen=True, slots=True)
class Draft:
    """Everything known about one program before it is written out."""

    table: VariableTable
    timeline: Timeline
    needs: Sequence[Sequence[Need]]
    run: Run
    waits: Waits
    frees: Frees
    iterations: int

    @property
    def pieces(self) -> int:
        """Number of pieces of the split."""
        return self.table.pieces


def results_of(site: Site, table: VariableTable) -> tuple[str, ...]:
    """Variables that a site's call binds."""
    if site.merge:
        return tuple(dict.fromkeys(table.merged.values()))
    if site.part in (BEFORE, AFTER):
        part = table.binding.before if site.part == BEFORE else table.binding.after
        if part is None:
            return ()
        return tuple(table.whole[value] for value in part.bodies[0].outputs)
    count = len(bound(site.part, table.binding).bodies[0].outputs)
    return tuple(table.output(site.part, k, site.piece) for k in range(count))


def uses_of(
    events: Sequence[Event], needs: Sequence[Sequence[Need]], draft_table: VariableTable
) -> Uses:
    """Which storages every event makes and reads, by the name that holds them."""
    table = draft_table
    base: dict[str, str] = {}
    for value, name in table.sliced.items():
        if value in table.whole:
            for piece in range(table.pieces):
                base[piece_name(name, piece, table.pieces)] = table.whole[value]
    for name, value in table.aliases.items():
        if value in table.whole:
            for piece in range(table.pieces):
                base[piece_name(name, piece, table.pieces)] = table.whole[value]
    writes, reads = [], []
    bound_names = set(base) | {
        piece_name(name, piece, table.pieces)
        for name in (*table.sliced.values(), *table.aliases)
        for piece in range(table.pieces)
    }
    for n, event in enumerate(events):
        reads.append(
            tuple(
                dict.fromkeys(
                    base.get(need.variable, need.variable) for need in needs[n]
                )
            )
        )
        made = results_of(event.site, table)
        for name in made:
            base.pop(name, None)
        writes.append(made)
        if event.site.section in ("before", "first"):
            bound_names.update(made)
    return Uses(tuple(writes), tuple(reads), frozenset(bound_names))


def write_out(draft: Draft) -> Program:
    """The blocks of a program."""
    recorded = _recorded(draft)
    timeline = draft.timeline
    last_layer = Layer(draft.iterations - 1)
    return Program(
        (
            _before(draft, recorded),
            *_windows(timeline.first, Layer(0), draft, recorded),
        ),
        tuple(_windows(timeline.loop, Layer(0, in_loop=True), draft, recorded)),
        (
            *_windows(timeline.last, last_layer, draft, recorded),
            _after(draft),
        ),
        timeline.start,
    )


def _recorded(draft: Draft) -> frozenset[Site]:
    """Sites whose events somebody waits for."""
    latest: dict[Signal, Site] = {}
    found: set[Site] = set()

    def wait(moment: Moment) -> None:
        found.update(latest[s] for s in draft.waits.get(moment, ()) if s in latest)

    for event in draft.run.events:
        site = event.site
        wait(Moment(site, site.stream))
        latest[Signal(site.part, site.piece)] = site
        if site.part == BEFORE:
            for stream in draft.run.streams:
                wait(Moment(None, stream))
    return frozenset(found)


def event_name(signal: Signal, draft_table: VariableTable) -> str:
    """The Python variable of an event."""
    if signal.part == BEFORE:
        return "before_done" if draft_table.binding.before is not None else "start"
    return f"{piece_name(signal.part, signal.piece, draft_table.pieces)}_done"


def _before(draft: Draft, recorded: frozenset[Site]) -> Block:
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
        statements.append(Record(event_name(Signal(BEFORE, 0), table), "main"))
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
            if value in binding.axes:
                statements.append(Merge(target, pieces, binding.axes[value]))
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
    statements.append(Return(tuple(_result(value, table) for value in binding.results)))
    return Block(AFTER, tuple(statements))


def _result(value: str, table: VariableTable) -> Operand:
    if value in table.inputs:
        return input_operand(table.inputs[value])
    if value in table.whole:
        return Variable(table.whole[value])
    for part in table.binding.parts:
        outputs = part.instances[-1].outputs
        if value in outputs:
            key = (part.name, outputs.index(value))
            merged = table.pieces > 1
            return Variable(table.merged[key] if merged else table.outputs[key])
    raise AssertionError(f"no part makes the result {value}")


__all__ = ["Draft", "InputOperand", "results_of", "uses_of", "write_out"]
