"""What every issued step must follow: by data, by effects, as the schedule says, and by
the fork."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP, Instance, Place
from dynaflow_dsl.plan.model import Choice, InputOperand, Layer, Operand
from dynaflow_dsl.plan.operands import operands, whole_operand
from dynaflow_dsl.plan.timeline import Event
from dynaflow_dsl.plan.variables import VariableTable, bound


class Step(NamedTuple):
    """One piece of one part in one iteration, or of the gap of that number.

    `piece` is None for a step that takes all pieces, and before and after the parts.
    Every step follows that of `before`.
    """

    part: str
    iteration: int
    piece: int | None


BEFORE_STEP = Step(BEFORE, 0, None)
AFTER_STEP = Step(AFTER, 0, None)


@dataclass(frozen=True, slots=True)
class Need:
    """A step that must have finished, and the variable that it left behind.

    `whole` is the tensor that it wrote instead, which other pieces are in as well.
    `after` is what the schedule says where it alone wants this order, `memory` what
    both touch where that is why. `weights` tells what the two do where one brings
    weights: read what the other brings, or fill the buffer that the other has read.
    """

    step: Step
    variable: str
    after: str = ""
    weights: Literal["", "reads", "fills"] = ""
    memory: str = ""
    whole: str = ""

    @property
    def read(self) -> str:
        """The variable that is there to be read."""
        return self.whole or self.variable


# For each step, those that it must follow, with the name of what both touch.
Effects = Mapping[Step, Mapping[Step, str]]


def step_of(event: Event) -> Step:
    """The step that an event issues."""
    return Step(event.site.part, event.iteration, event.site.piece)


@dataclass(frozen=True, slots=True)
class WeightOrder:
    """For each step those that bring its weights, and for each step that brings some
    those that have to be done with its buffer."""

    brought_by: Mapping[Step, Sequence[Step]]
    used_before: Mapping[Step, Sequence[Step]]


def needs(
    event: Event, table: VariableTable, effects: Effects, weights: WeightOrder
) -> list[Need]:
    """Everything that must have finished before an event, data first."""
    site, binding = event.site, table.binding
    if site.part == BEFORE:
        return []
    if site.merge:
        found = [
            need
            for value in table.merged
            if value not in table.written
            for need in _makers(value, None, table)
        ]
        return [*found, Need(BEFORE_STEP, "")]
    found = []
    if site.part == AFTER:
        if binding.after is not None:
            for value in binding.after.instances[0].inputs:
                read = whole_operand(value, table)
                joined = value in table.merged and value not in table.written
                if value in table.makers and not joined:
                    found += _makers(value, None, table)
                else:
                    # Joined pieces were made on main just before, like `before`.
                    found.append(Need(BEFORE_STEP, _variable(read, 0)))
    else:
        found += _data(event, table)
    step = step_of(event)
    for one, memory in effects.get(step, {}).items():
        found.append(Need(one, "", memory=memory))
    brought, used = weights.brought_by.get(step, ()), weights.used_before.get(step, ())
    found += [Need(one, "", weights="reads") for one in brought]
    found += [Need(one, "", weights="fills") for one in used]
    found += _as_said(event, table)
    return [*found, Need(BEFORE_STEP, "")]


def _data(event: Event, table: VariableTable) -> Iterator[Need]:
    site, i = event.site, event.iteration
    instance = bound(site.part, table.binding).instances[i]
    read = operands(site.part, i, Layer(i), site.piece, table)
    for value, operand in zip(instance.inputs, read, strict=True):
        if value in table.makers:
            yield from _makers(value, site.piece, table)
        else:
            yield Need(BEFORE_STEP, _variable(operand, i))


def _makers(value: str, piece: int | None, table: VariableTable) -> list[Need]:
    """The steps that make what a step of this piece reads, and their variables."""
    maker = table.makers[value]
    if table.is_joined(maker.part):
        step = Step(maker.part, maker.iteration, None)
        return [Need(step, table.base(maker.key), whole=table.written.get(value, ""))]
    pieces = range(table.pieces) if piece is None else (piece,)
    if piece is None and value not in table.binding.axes:
        # Not cut: the first piece has it all.
        pieces = range(1)
    return [
        Need(
            Step(maker.part, maker.iteration, j),
            table.output(maker.key, j),
            whole=table.written.get(value, ""),
        )
        for j in pieces
    ]


def _variable(read: Operand, i: int) -> str:
    match read:
        case InputOperand():
            return ""
        case Choice(options, chosen, _):
            return _variable(options[chosen[i]], i)
        case _:
            return read.name


def _as_said(event: Event, table: VariableTable) -> Iterator[Need]:
    """What the step comes `after`; nothing where there is no such iteration."""
    site = event.site
    p = event.iteration + site.previous
    for said in site.after:
        iteration = p - said.previous
        if 0 <= iteration < len(bound(said.part, table.binding).instances):
            yield Need(Step(said.part, iteration, said.piece), "", said.label)


def effect_order(table: VariableTable) -> dict[Step, dict[Step, str]]:
    """Steps that touch the same input's memory, where at least one of them writes.

    Pieces of a split tensor are different memory; everything else is one.
    """
    binding, pieces = table.binding, table.pieces
    accessed: dict[tuple[str, int], list[tuple[Step, bool]]] = defaultdict(list)

    def access(instance: Instance, step: Step) -> None:
        for name, writes in instance.touched:
            apart = pieces > 1 and name in binding.axes and step.piece is not None
            for place in (step.piece or 0,) if apart else range(pieces):
                accessed[(name, place)].append((step, writes))

    if binding.before is not None:
        access(binding.before.instances[0], BEFORE_STEP)
    for s, section in enumerate(binding.sections):
        for i in range(len(section.iterations)):
            n = table.gap_at.get(Place(s, i))
            if n is not None:
                for piece in range(pieces):
                    gap = bound(GAP, binding).instances[n]
                    access(gap, Step(GAP, n, piece))
            for part in section.parts:
                joined = table.is_joined(part.name)
                for j in (None,) if joined else range(pieces):
                    access(part.instances[i], Step(part.name, i, j))
    if binding.after is not None:
        access(binding.after.instances[0], AFTER_STEP)
    order: dict[Step, dict[Step, str]] = defaultdict(dict)
    for (name, _), accesses in accessed.items():
        if any(writes for _, writes in accesses):
            _order_accesses(name, accesses, order)
    return order


def _order_accesses(
    name: str,
    accesses: Sequence[tuple[Step, bool]],
    order: dict[Step, dict[Step, str]],
) -> None:
    last_write: Step | None = None
    reads: list[Step] = []
    for step, writes in accesses:
        earlier = ([last_write] if last_write else []) + (reads if writes else [])
        for other in earlier:
            if other != step:
                order[step].setdefault(other, name)
        if writes:
            last_write, reads = step, []
        else:
            reads.append(step)
