"""How each step reads its inputs: as variables, arguments, or slices of them."""

from __future__ import annotations

from collections.abc import Iterator

from dynaflow_dsl.bind.model import Carried, Outer, Output
from dynaflow_dsl.graph.model import Input
from dynaflow_dsl.plan.model import (
    Choice,
    InputOperand,
    Layer,
    Operand,
    PieceOf,
    Variable,
)
from dynaflow_dsl.plan.names import piece_name
from dynaflow_dsl.plan.variables import (
    VariableTable,
    bound,
    is_list_item,
    state_of,
)


def operands(
    part: str, iteration: int, layer: Layer, piece: int | None, table: VariableTable
) -> tuple[Operand, ...]:
    """What a step of a part or a gap reads in an iteration.

    `layer` is how the text names the iteration. `piece` None takes whole tensors.
    """
    here = bound(part, table.binding)
    instance = here.instances[iteration]
    if not here.roles:
        return tuple(single(value, piece, table) for value in instance.inputs)
    found: list[Operand] = []
    for position, (role, value) in enumerate(
        zip(here.roles, instance.inputs, strict=True)
    ):
        match role:
            case Outer(values):
                found.append(_outer(values, layer, piece, table))
            case Carried() if value not in table.makers:
                key = state_of(here, position, table.makers)
                found.append(_initial(value, key, piece, table))
            case _:
                found.append(single(value, piece, table))
    return tuple(found)


def names_read(
    part: str, iteration: int, piece: int | None, table: VariableTable
) -> Iterator[tuple[str, str]]:
    """The variables that a step reads, each with the value that it should hold."""
    values = bound(part, table.binding).instances[iteration].inputs
    read = operands(part, iteration, Layer(iteration), piece, table)
    for value, operand in zip(values, read, strict=True):
        maker = table.makers.get(value)
        match operand:
            case _ if maker and piece is None and not table.is_whole(value):
                for each in range(table.pieces):
                    yield table.output(maker.key, each), value
            case Choice(options, chosen, _):
                yield options[chosen[iteration]].name, value
            case _:
                yield operand.name, value


def single(
    value: str, piece: int | None, table: VariableTable
) -> Variable | InputOperand | PieceOf:
    """One value as a step of this piece reads it, or whole."""
    maker = table.makers.get(value)
    if maker is not None:
        return _made(value, piece, table)
    item = table.inputs.get(value)
    cut = piece if table.is_cut(value) else None
    if item is not None and is_list_item(item):
        name, _, index = value.rpartition(".")
        return InputOperand(name, None, int(index), cut)
    if cut is not None:
        return Variable(piece_name(table.sliced[value], cut, table.endings))
    if item is not None:
        return InputOperand(value)
    return Variable(table.whole[value])


def whole_operand(value: str, table: VariableTable) -> Variable | InputOperand:
    """How `before`, `after` and the caller read: whole values only."""
    if value in table.makers:
        if not table.is_whole(value):
            return Variable(table.merged[value])
        return Variable(table.base(table.makers[value].key))
    if value in table.inputs:
        return input_operand(table.inputs[value])
    return Variable(table.whole[value])


def input_operand(item: Input) -> InputOperand:
    """A whole argument, or a whole tensor of a list argument."""
    if is_list_item(item):
        name, _, index = item.name.rpartition(".")
        return InputOperand(name, None, int(index), None)
    return InputOperand(item.name)


def _made(value: str, piece: int | None, table: VariableTable) -> Variable | PieceOf:
    """A value that a part or a gap makes."""
    key = table.makers[value].key
    if table.is_whole(value):
        if piece is not None and table.is_cut(value):
            return PieceOf(table.base(key), piece)
        return Variable(table.base(key))
    if piece is not None:
        return Variable(table.output(key, piece))
    if value in table.binding.axes:
        return Variable(table.gathered[table.binding.variables[key]])
    # Not cut, so that all pieces made the same.
    return Variable(table.output(key, 0))


def _initial(
    value: str, state: Output, piece: int | None, table: VariableTable
) -> Operand:
    """What a carried variable starts from, under its own name where that is bound."""
    base = table.base(state)
    if table.pieces == 1 or table.is_joined(state.part):
        cut = piece is not None and table.is_cut(value)
        return PieceOf(base, piece or 0) if cut else Variable(base)
    if piece is None:
        return whole_operand(value, table)
    return Variable(piece_name(base, piece, table.endings))


def _outer(
    values: tuple[str, ...], layer: Layer, piece: int | None, table: VariableTable
) -> Operand:
    """A value from outside the iterations, perhaps another one in each of them."""
    if len(set(values)) == 1:
        return single(values[0], piece, table)
    series = _series(values, table)
    if series is not None:
        name, shift = series
        index = Layer(layer.offset + shift, layer.in_loop)
        return InputOperand(
            name, index, None, piece if table.is_cut(values[0]) else None
        )
    options = list(dict.fromkeys(values))
    chosen = tuple(single(value, piece, table) for value in options)
    return Choice(chosen, tuple(options.index(v) for v in values), layer)


def _series(values: tuple[str, ...], table: VariableTable) -> tuple[str, int] | None:
    """`keys.0, keys.1, …`: the list argument and the index of the first tensor."""
    if values not in table.series:
        table.series[values] = _find_series(values, table)
    return table.series[values]


def _find_series(
    values: tuple[str, ...], table: VariableTable
) -> tuple[str, int] | None:
    if not all(is_list_item(table.inputs.get(value)) for value in values):
        return None
    split = [value.rpartition(".") for value in values]
    first = int(split[0][2])
    regular = all(
        name == split[0][0] and int(number) == first + i
        for i, (name, _, number) in enumerate(split)
    )
    return (split[0][0], first) if regular else None
