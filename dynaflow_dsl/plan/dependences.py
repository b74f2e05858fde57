"""What every issued step must follow: by data, by effects, and by the fork."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynaflow_dsl.bind.model import (
    AFTER,
    BEFORE,
    Binding,
    BoundPart,
    Carried,
    Instance,
    Produced,
    Role,
)
from dynaflow_dsl.plan.model import Choice, InputOperand, Layer, Variable
from dynaflow_dsl.plan.operands import VariableTable, after_operand, operand
from dynaflow_dsl.plan.timeline import Event


class Step(NamedTuple):
    """One piece of one part in one iteration. Every step follows that of `before`."""

    part: str
    iteration: int
    piece: int


BEFORE_STEP = Step(BEFORE, 0, 0)


@dataclass(frozen=True, slots=True)
class Need:
    """A step that must have finished, and the variable that it left behind."""

    step: Step
    variable: str


def roles_of(part: str, binding: Binding) -> tuple[Role, ...]:
    """Roles of the inputs of a part, of `before`, or of `after`."""
    return bound(part, binding).roles


def bound(name: str, binding: Binding) -> BoundPart:
    """The bound part of this name, `before` and `after` included."""
    candidates = (binding.before, *binding.parts, binding.after)
    return next(p for p in candidates if p is not None and p.name == name)


def step_of(event: Event) -> Step:
    """The step that an event issues."""
    return Step(event.site.part, event.iteration, event.site.piece)


def needs(
    event: Event,
    iterations: int,
    table: VariableTable,
    effects: Mapping[Step, list[Step]],
) -> list[Need]:
    """Everything that must have finished before an event, data first."""
    site, binding = event.site, table.binding
    if site.part == BEFORE:
        return []
    if site.merge:
        return [
            Need(Step(part, iterations - 1, j), table.output(part, k, j))
            for part, k in table.merged
            for j in range(table.pieces)
        ]
    if site.part == AFTER:
        found = _needs_of_after(iterations, table)
    else:
        found = [_need(role, event, table) for role in roles_of(site.part, binding)]
    found += [Need(step, "") for step in effects.get(step_of(event), ())]
    return [*found, Need(BEFORE_STEP, "")]


def _need(role: Role, event: Event, table: VariableTable) -> Need:
    piece, i = event.site.piece, event.iteration
    read = operand(role, Layer(i), piece, table)
    match read:
        case Variable(name):
            variable = name
        case InputOperand():
            variable = ""
        case Choice(options, chosen, _):
            option = options[chosen[i]]
            variable = option.name if isinstance(option, Variable) else ""
    match role:
        case Produced(part, _):
            return Need(Step(part, i, piece), variable)
        case Carried(part, _, _) if i > 0:
            return Need(Step(part, i - 1, piece), variable)
        case _:
            return Need(BEFORE_STEP, variable)


def _needs_of_after(iterations: int, table: VariableTable) -> list[Need]:
    found = []
    if table.binding.after is not None:
        for role in table.binding.after.roles:
            read = after_operand(role, table)
            assert not isinstance(read, Choice)
            if isinstance(role, Produced) and table.pieces == 1:
                found.append(Need(Step(role.part, iterations - 1, 0), read.name))
            else:
                # Joined pieces were made on main just before, like results of `before`.
                found.append(Need(BEFORE_STEP, read.name))
    return found


def effect_order(
    binding: Binding, pieces: int, iterations: int
) -> dict[Step, list[Step]]:
    """Steps that touch the same input's memory, where at least one of them writes.

    Pieces of a split tensor are different memory; everything else is one. Iterations
    past the last stand for the last, so that a shortened run keeps its end.
    """
    accessed: dict[tuple[str, int], list[tuple[Step, bool]]] = defaultdict(list)

    def access(instance: Instance, step: Step, *, whole: bool) -> None:
        for name, writes in instance.touched:
            apart = pieces > 1 and name in binding.axes and not whole
            for place in (step.piece,) if apart else range(pieces):
                accessed[(name, place)].append((step, writes))

    if binding.before is not None:
        access(binding.before.instances[0], BEFORE_STEP, whole=True)
    for i in range(iterations):
        index = i if i < iterations - 1 else len(binding.iterations) - 1
        for part in binding.parts:
            for piece in range(pieces):
                step = Step(part.name, i, piece)
                access(part.instances[index], step, whole=False)
    if binding.after is not None:
        access(binding.after.instances[0], Step(AFTER, 0, 0), whole=True)
    order: dict[Step, list[Step]] = defaultdict(list)
    for accesses in accessed.values():
        if any(writes for _, writes in accesses):
            _order_accesses(accesses, order)
    return order


def _order_accesses(
    accesses: Sequence[tuple[Step, bool]], order: dict[Step, list[Step]]
) -> None:
    last_write: Step | None = None
    reads: list[Step] = []
    for step, writes in accesses:
        earlier = ([last_write] if last_write else []) + (reads if writes else [])
        order[step] += [e for e in earlier if e != step and e not in order[step]]
        if writes:
            last_write, reads = step, []
        else:
            reads.append(step)
