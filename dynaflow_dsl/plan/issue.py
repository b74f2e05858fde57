"""The windows of a schedule in the order in which their steps are issued.

Of steps that may run at once, one that reads a variable goes before one that gives it
to the next result. The sequential program has one window for each section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynaflow_dsl.bind.model import BoundSection, Place
from dynaflow_dsl.plan.operands import names_read
from dynaflow_dsl.plan.timeline import PlannedStep, PlannedWindow, Reference
from dynaflow_dsl.plan.variables import Maker, VariableTable, bound
from dynaflow_dsl.resolve.model import MAIN, Run, Step, Window
from dynaflow_dsl.resolve.steps import step_label


def scheduled(table: VariableTable) -> list[list[PlannedWindow]]:
    """The windows of each section as the schedule has them."""
    return [
        [_window(window, number, table) for window in section.section.windows]
        for number, section in enumerate(table.binding.sections)
    ]


def in_program_order(table: VariableTable) -> list[list[PlannedWindow]]:
    """All parts of each section, one after the other."""
    found = []
    for number, section in enumerate(table.binding.sections):
        spans = {part.name: part.name_span for part in section.section.parts}
        steps = tuple(
            PlannedStep(name, 0, False, MAIN, 0, name, spans[name])
            for name in _program_order(section, number, table)
        )
        found.append([PlannedWindow(steps, section.section.span)])
    return found


def _window(window: Window, section: int, table: VariableTable) -> PlannedWindow:
    return PlannedWindow(
        tuple(
            PlannedStep(
                step.part,
                step.piece,
                step.previous,
                run.stream,
                number,
                step_label(step, table.piece_names),
                step.span,
                tuple(
                    Reference(
                        said.part,
                        said.piece,
                        said.previous,
                        step_label(said, table.piece_names),
                    )
                    for said in step.after
                ),
            )
            for number, run in _issue_order(window, section, table)
            for step in run.steps
        ),
        window.span,
    )


def _program_order(
    section: BoundSection, number: int, table: VariableTable
) -> list[str]:
    """Parts by data; readers of what the layer before left come before its next maker.

    A name holds one layer's value: were it replaced first, nothing could read the old
    one. Where the data leaves no such order, program order stays, and DFS308 tells.
    """
    names = [part.name for part in section.parts]
    by_data: dict[str, set[str]] = {name: set() for name in names}
    by_name: dict[str, set[str]] = {name: set() for name in names}
    for part in section.parts:
        for i, instance in enumerate(part.instances):
            for value in instance.inputs:
                maker = table.makers.get(value)
                if maker is not None and maker.part in by_data and maker.iteration == i:
                    by_data[part.name].add(maker.part)
    for name in names:
        for other in names:
            here, there = (
                Step(one, 0, False, section.section.span) for one in (name, other)
            )
            if name != other and _replaces(there, here, number, table):
                by_name[other].add(name)
    for wanted in ({n: by_data[n] | by_name[n] for n in names}, by_data):
        order = _sorted(wanted)
        if order is not None:
            return order
    return names


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


def _issue_order(
    window: Window, section: int, table: VariableTable
) -> list[tuple[int, Run]]:
    waiting = list(enumerate(window.runs))
    order: list[tuple[int, Run]] = []
    while waiting:
        ready = next(
            (
                entry
                for entry in waiting
                if not any(
                    _reads_what_is_replaced(other, entry[1], section, table)
                    for number, other in waiting
                    if number != entry[0]
                )
            ),
            waiting[0],
        )
        order.append(ready)
        waiting.remove(ready)
    return order


def _reads_what_is_replaced(
    reader: Run, writer: Run, section: int, table: VariableTable
) -> bool:
    """Whether `reader` needs a result that `writer` gives another one's name."""
    return any(
        _replaces(made, step, section, table)
        for made in writer.steps
        for step in reader.steps
        if step.piece == made.piece or None in (step.piece, made.piece)
    )


def _replaces(made: Step, step: Step, section: int, table: VariableTable) -> bool:
    """Whether in some pass `made` binds a variable of which `step` reads an older
    result."""
    count = len(table.binding.sections[section].iterations)
    for p in range(count + 1):
        writes, reads = p - made.previous, p - step.previous
        if not (0 <= writes < count and 0 <= reads < count):
            continue
        bound_there = dict(_written(made, writes, section, table))
        for name, age in _read(step, reads, table):
            if name in bound_there and age < bound_there[name]:
                return True
    return False


# When a result is made: section, iteration, and whether by a part or the gap before.
_Age = tuple[int, int, bool]
_FIRST: _Age = (-1, 0, False)


def _written(
    step: Step, iteration: int, section: int, table: VariableTable
) -> Iterator[tuple[str, _Age]]:
    """The variables that a step binds, those of the gap before it included."""
    instance = bound(step.part, table.binding).instances[iteration]
    outputs = instance.outputs
    n = table.gap_at.get(Place(section, iteration))
    if n is not None and table.binding.gaps is not None:
        gap = table.binding.gaps.part.instances[n].outputs
        if set(gap) & set(instance.inputs):
            outputs = (*gap, *outputs)
    for value in outputs:
        if value:
            maker = table.makers[value]
            name = table.output(maker.key, step.piece)
            yield name, _age(maker, table)


def _read(
    step: Step, iteration: int, table: VariableTable
) -> Iterator[tuple[str, _Age]]:
    """The variables that a step reads, and when what they hold was made."""
    for name, value in names_read(step.part, iteration, step.piece, table):
        maker = table.makers.get(value)
        yield name, _FIRST if maker is None else _age(maker, table)


def _age(maker: Maker, table: VariableTable) -> _Age:
    gaps = table.binding.gaps
    if gaps is not None and maker.part == gaps.part.name:
        return (*gaps.places[maker.iteration], False)
    for number, section in enumerate(table.binding.sections):
        if any(part.name == maker.part for part in section.parts):
            return (number, maker.iteration, True)
    raise AssertionError(maker)
