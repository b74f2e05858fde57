"""The timelines of a schedule written out: passes, gaps in them, and equal passes.

Pass p of a section issues what its timeline says of iteration p, and the `prev` steps
of iteration p - 1. A gap goes into the pass and the window of the first step that needs
it. Neighbouring passes of equal text become one loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.bind.model import GAP, Instance, Place
from dynaflow_dsl.plan.model import Layer, Operand
from dynaflow_dsl.plan.names import piece_label
from dynaflow_dsl.plan.operands import names_read, operands
from dynaflow_dsl.plan.timeline import (
    NO_RUN,
    Item,
    PlannedStep,
    PlannedWindow,
    Stretch,
    Timeline,
    sites,
    surround,
)
from dynaflow_dsl.plan.variables import VariableTable, bound
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.source import Span


def lay_out(
    timelines: Sequence[Sequence[PlannedWindow]], span: Span, table: VariableTable
) -> Timeline:
    """The timelines of all sections, one after the other."""
    stretches: list[Stretch] = []
    for section, windows in enumerate(timelines):
        writer = _Passes(section, windows, table)
        count = len(table.binding.sections[section].iterations)
        passes = [writer.items(p) for p in range(count)]
        texts = [writer.text(items, p) for p, items in enumerate(passes)]
        start = 0
        while start < count:
            stop = start + 1
            while stop < count and texts[stop] == texts[start]:
                stop += 1
            segment, loop = len(stretches) + 1, stop - start > 1
            found = sites(passes[start], segment, start, loop=loop, left=False)
            stretches.append(Stretch(section, start, stop, tuple(found)))
            start = stop
        if left := writer.items(count):
            found = sites(left, len(stretches) + 1, count, loop=False, left=True)
            stretches.append(Stretch(section, count, count + 1, tuple(found)))
    merges = set(table.merged) - set(table.written)
    return surround(tuple(stretches), span, merges=bool(merges))


@dataclass(slots=True)
class _Passes:
    """Writes the passes of one section, from the first one on."""

    section: int
    windows: Sequence[PlannedWindow]
    table: VariableTable
    issued: set[tuple[int, int]] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)

    def items(self, p: int) -> tuple[Item, ...]:
        """Everything that pass `p` issues, in order."""
        count = len(self.table.binding.sections[self.section].iterations)
        found: list[Item] = []
        for number, window in enumerate(self.windows):
            mine: list[Item] = []
            for step in window.steps:
                iteration = p - 1 if step.previous else p
                if not 0 <= iteration < count:
                    continue
                for gap in self._gaps(number, step, iteration):
                    mine.insert(self._place(gap, mine), gap)
                mine.append(Item(number, step, iteration))
            found += mine
        return tuple(found)

    def text(self, items: Sequence[Item], p: int) -> tuple[object, ...]:
        """What the loop would say of a pass: equal texts, one loop."""
        found: list[object] = []
        for item in items:
            layer = Layer(item.iteration - p, in_loop=True)
            body = bound(item.step.part, self.table.binding)
            results: object = None
            if item.is_gap:
                made = body.instances[item.iteration].outputs
                results = tuple(
                    self.table.base(self.table.makers[value].key) if value else ""
                    for value in made
                )
            read, written = self._read(item, layer), self._written(item)
            found.append((item.window, item.step, layer, read, results, written))
        return tuple(found)

    def _written(self, item: Item) -> tuple[object, ...]:
        """The results that go into tensors that are there, and which are made first."""
        table, found = self.table, []
        instance = bound(item.step.part, table.binding).instances[item.iteration]
        for k, value in enumerate(instance.outputs):
            if (name := table.written.get(value)) is not None:
                new = None if value in self.begun else table.types[value]
                found.append((k, name, new))
                self.begun.add(value)
        return tuple(found)

    def _read(self, item: Item, layer: Layer) -> tuple[Operand, ...]:
        return operands(
            item.step.part, item.iteration, layer, item.step.piece, self.table
        )

    def _gaps(self, window: int, step: PlannedStep, iteration: int) -> list[Item]:
        """The pieces of the gap that a step needs and that are not issued yet."""
        n = self.table.gap_at.get(Place(self.section, iteration))
        if n is None or not self._needs(step.part, iteration, n):
            return []
        pieces = self.table.pieces
        wanted = range(pieces) if step.piece is None else (step.piece,)
        missing = [piece for piece in wanted if (n, piece) not in self.issued]
        self.issued.update((n, piece) for piece in missing)
        return [
            Item(
                window,
                PlannedStep(
                    GAP,
                    piece,
                    False,
                    MAIN,
                    NO_RUN,
                    piece_label(GAP, piece, self.table.piece_names),
                    step.span,
                ),
                n,
            )
            for piece in missing
        ]

    def _needs(self, part: str, iteration: int, n: int) -> bool:
        """Whether a part needs the gap before its iteration, by data or by effects."""
        binding = self.table.binding
        gap = bound(GAP, binding).instances[n]
        here = bound(part, binding).instances[iteration]
        read = bool(set(here.inputs) & set(gap.outputs))
        return read or self._touch(here, gap, same_piece=True)

    def _place(self, gap: Item, mine: Sequence[Item]) -> int:
        """As early in its window as what it needs lets it be.

        So it holds up no step that the window issues on `main`.
        """
        binding = self.table.binding
        instance = bound(GAP, binding).instances[gap.iteration]
        names = {
            self.table.output(self.table.makers[value].key, gap.step.piece)
            for value in instance.outputs
            if value
        }
        place = 0
        for k, item in enumerate(mine):
            other = bound(item.step.part, binding).instances[item.iteration]
            read = {
                name
                for name, _ in names_read(
                    item.step.part, item.iteration, item.step.piece, self.table
                )
            }
            same_piece = item.step.piece in (gap.step.piece, None)
            if (
                item.is_gap
                or (same_piece and set(instance.inputs) & set(other.outputs))
                or names & read
                or self._touch(instance, other, same_piece=same_piece)
            ):
                place = k + 1
        return place

    def _touch(self, one: Instance, other: Instance, *, same_piece: bool) -> bool:
        """Whether both touch one input's memory and at least one writes it."""
        touched = dict(one.touched)
        return any(
            name in touched
            and (writes or touched[name])
            and (same_piece or not self.table.is_cut(name))
            for name, writes in other.touched
        )
