"""What a program binds, reads and returns, before its statements are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.plan.clocks import Run, Waits
from dynaflow_dsl.plan.dependences import Need, bound
from dynaflow_dsl.plan.lifetimes import Frees, Uses
from dynaflow_dsl.plan.model import InputOperand, Variable
from dynaflow_dsl.plan.names import piece_name
from dynaflow_dsl.plan.operands import VariableTable, input_operand
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
        wanted = [need.variable for need in needs[n]]
        if event.site == events[-1].site:
            # The caller reads what is returned.
            wanted += [item.name for item in results(table)]
        reads.append(tuple(dict.fromkeys(base.get(name, name) for name in wanted)))
        made = results_of(event.site, table)
        for name in made:
            base.pop(name, None)
        writes.append(made)
        if event.site.section in ("before", "first"):
            bound_names.update(made)
    return Uses(tuple(writes), tuple(reads), frozenset(bound_names))


def results(table: VariableTable) -> tuple[Variable | InputOperand, ...]:
    """What the step returns."""
    return tuple(_result(value, table) for value in table.binding.results)


def _result(value: str, table: VariableTable) -> Variable | InputOperand:
    if value in table.inputs:
        return input_operand(table.inputs[value])
    if value in table.whole:
        return Variable(table.whole[value])
    for part in table.binding.parts:
        outputs = part.instances[-1].outputs
        if value in outputs:
            key = (part.name, outputs.index(value))
            return Variable(table.merged.get(key, table.outputs[key]))
    raise AssertionError(f"no part makes the result {value}")
