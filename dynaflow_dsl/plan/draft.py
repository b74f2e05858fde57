"""What a program binds, reads and returns, before its statements are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP, Output
from dynaflow_dsl.plan.allocations import Allocations, targets
from dynaflow_dsl.plan.clocks import Run, Waits
from dynaflow_dsl.plan.dependences import Need
from dynaflow_dsl.plan.lifetimes import Frees, Uses
from dynaflow_dsl.plan.model import InputOperand, Variable
from dynaflow_dsl.plan.names import piece_name
from dynaflow_dsl.plan.operands import whole_operand
from dynaflow_dsl.plan.timeline import Event, Site, Timeline
from dynaflow_dsl.plan.variables import VariableTable, bound


@dataclass(frozen=True, slots=True)
class Draft:
    """Everything known about one program before it is written out.

    `first` is the first event of each site.
    """

    table: VariableTable
    timeline: Timeline
    needs: Sequence[Sequence[Need]]
    run: Run
    waits: Waits
    allocations: Allocations
    frees: Frees
    first: Mapping[Site, Event]

    @property
    def pieces(self) -> int:
        """Number of pieces of the split."""
        return self.table.pieces


def results_of(event: Event, table: VariableTable) -> tuple[str, ...]:
    """Variables of what an event's call makes, also where it writes that elsewhere."""
    site, binding = event.site, table.binding
    if site.merge:
        joined = [n for value, n in table.merged.items() if value not in table.written]
        return tuple(dict.fromkeys(joined))
    if site.part in (BEFORE, AFTER):
        part = binding.before if site.part == BEFORE else binding.after
        if part is None:
            return ()
        return tuple(table.whole[value] for value in part.bodies[0].outputs)
    here = bound(site.part, binding).instances[event.iteration]
    gap = event.iteration if site.part == GAP else 0
    return tuple(
        table.output(Output(site.part, k, gap), site.piece)
        for k in range(len(here.outputs))
    )


def bound_by(event: Event, table: VariableTable) -> tuple[str, ...]:
    """Variables that an event's call binds."""
    written = {target.output for target in targets(event, table)}
    named = results_of(event, table)
    return tuple(name for k, name in enumerate(named) if k not in written)


def uses_of(
    events: Sequence[Event],
    needs: Sequence[Sequence[Need]],
    table: VariableTable,
    allocations: Allocations,
) -> Uses:
    """Which storages every event makes and reads, by the name that holds them.

    Who writes a tensor that is there already counts among its readers.
    """
    base: dict[str, str] = {}
    views: set[str] = set()
    named = [(name, value) for value, name in table.sliced.items()]
    for name, value in (*named, *table.aliases.items()):
        for piece in range(table.pieces):
            views.add(piece_name(name, piece, table.endings))
            if value in table.whole:
                base[piece_name(name, piece, table.endings)] = table.whole[value]
        if name in table.whole_states:
            views.add(name)
            if value in table.whole:
                base[name] = table.whole[value]
    writes, reads = [], []
    last = events[-1].site
    for n, event in enumerate(events):
        wanted = [need.read for need in needs[n]]
        if event.site is last:
            # The caller reads what is returned.
            wanted += [item.name for item in results(table)]
        new = allocations.names.get(n, ())
        into = [target.where.name for target in targets(event, table)]
        wanted += [name for name in into if name not in new]
        reads.append(tuple(dict.fromkeys(base.get(name, name) for name in wanted)))
        made = (*bound_by(event, table), *new)
        for name in made:
            base.pop(name, None)
        writes.append(made)
    return Uses(tuple(writes), tuple(reads), frozenset(views))


def results(table: VariableTable) -> tuple[Variable | InputOperand, ...]:
    """What the step returns."""
    return tuple(
        Variable(table.merged[value])
        if value in table.merged
        else whole_operand(value, table)
        for value in table.binding.results
    )
