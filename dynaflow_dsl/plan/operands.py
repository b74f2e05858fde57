"""From the roles of a part's inputs to variables, and from there to dependences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.bind.model import (
    Binding,
    BoundPart,
    Carried,
    Outer,
    Produced,
    Role,
)
from dynaflow_dsl.graph.model import Input, Operation
from dynaflow_dsl.plan.model import Choice, InputOperand, Layer, Operand, Variable
from dynaflow_dsl.plan.names import Names, Words, piece_name, role_name
from dynaflow_dsl.resolve.model import MAIN

CARRIED_NAME = "hidden"


@dataclass(frozen=True, slots=True)
class VariableTable:
    """Names of all variables of one program.

    `outputs[(part, k)]` is the base name of a part's k-th output, `whole[value]` that
    of a value that exists once (a result of `before`), `sliced` the values that are cut
    into pieces up front, with their base names, `aliases` carried variables that start
    as another variable or input: name to value. `merged[(part, k)]` names what is made
    of the pieces for `after` and for the caller, who gets nothing from another stream.
    """

    binding: Binding
    pieces: int
    inputs: Mapping[str, Input]
    outputs: Mapping[tuple[str, int], str]
    whole: Mapping[str, str]
    sliced: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def output(self, part: str, k: int, piece: int) -> str:
        """Variable of one piece of a part's output."""
        return piece_name(self.outputs[(part, k)], piece, self.pieces)

    def is_cut(self, value: str) -> bool:
        """Whether steps read pieces of a value rather than the whole."""
        return self.pieces > 1 and value in self.binding.axes


def carried_initials(binding: Binding) -> dict[tuple[str, int], str]:
    """What each carried output is before iteration 0."""
    return {
        (role.part, role.output): role.initial
        for part in binding.parts
        for role in part.roles
        if isinstance(role, Carried)
    }


def make_variables(
    binding: Binding, pieces: int, streams: Sequence[str], words: Words
) -> VariableTable:
    """Choose all names: carried values first, then parts, then what surrounds them."""
    inputs = {item.name: item for item in binding.graph.inputs}
    names = Names(words.taken, pieces)
    initials = carried_initials(binding)
    outputs: dict[tuple[str, int], str] = {}
    for key in initials:
        outputs[key] = names.new(CARRIED_NAME)
    for part in binding.parts:
        count = len(part.bodies[0].outputs)
        makers = _makers(part)
        for k in range(count):
            if (part.name, k) in outputs:
                continue
            wanted = part.name if count == 1 else f"{part.name}_{makers[k]}"
            outputs[(part.name, k)] = names.new(wanted)
    whole: dict[str, str] = {}
    aliases: dict[str, str] = {}
    readers = (*binding.parts, *([binding.after] if binding.after else []))
    outer = {
        value
        for part in readers
        for role in part.roles
        if isinstance(role, Outer)
        for value in role.values
    }
    outer.update(binding.results)
    for key, value in initials.items():
        if value in inputs or value in outer or value in whole:
            aliases[outputs[key]] = value
        else:
            whole[value] = outputs[key]
    outside = [part for part in (binding.before, binding.after) if part is not None]
    for part in outside:
        for value, maker in zip(part.bodies[0].outputs, _makers(part), strict=True):
            if value not in whole:
                whole[value] = names.new(maker)
    sliced: dict[str, str] = {}
    if pieces > 1:
        for value in _cut_up_front(binding, inputs, aliases.values()):
            sliced[value] = whole.get(value) or names.for_pieces(value)
    if pieces > 1:
        merged = {key: outputs[key] for key in merged_outputs(binding)}
    else:
        merged = {
            key: names.new(f"{outputs[key]}_result")
            for key in returned_outputs(binding)
            if len(streams) > 1 and stream_of(key[0], binding) != MAIN
        }
    return VariableTable(
        binding, pieces, inputs, outputs, whole, sliced, aliases, merged
    )


def stream_of(part: str, binding: Binding, piece: int = 0) -> str:
    """The stream that a piece of a part runs on as scheduled."""
    parts = binding.schedule.parts
    return next(p.streams[piece] for p in parts if p.name == part)


def _makers(part: BoundPart) -> list[str]:
    """A name for each output of a part, from the operation that makes it."""
    made_by: dict[str, Operation] = {
        value.name: operation
        for operation in part.bodies[0].operations
        for value in operation.results
        if value is not None
    }
    return [role_name(made_by[value]) for value in part.bodies[0].outputs]


def _cut_up_front(
    binding: Binding, inputs: Mapping[str, Input], aliased: Collection[str]
) -> list[str]:
    """Values with one variable per piece: all that is cut, but tensors of lists.

    What starts a carried variable of another name is cut under that name.
    """
    found: dict[str, None] = {}
    for part in binding.parts:
        for role in part.roles:
            candidates: tuple[str, ...]
            match role:
                case Carried(_, _, initial):
                    candidates = () if initial in aliased else (initial,)
                case Outer(values):
                    candidates = values
                case Produced():
                    candidates = ()
            for value in candidates:
                if value in binding.axes and not is_list_item(inputs.get(value)):
                    found[value] = None
    return list(found)


def merged_outputs(binding: Binding) -> list[tuple[str, int]]:
    """Outputs of the last iteration that are read whole: by `after` or as a result."""
    found: dict[tuple[str, int], None] = {}
    if binding.after is not None:
        for role in binding.after.roles:
            if isinstance(role, Produced):
                found[(role.part, role.output)] = None
    return list(dict.fromkeys((*found, *returned_outputs(binding))))


def returned_outputs(binding: Binding) -> list[tuple[str, int]]:
    """Outputs of the last iteration that are results of the step."""
    last = {
        value: (part.name, k)
        for part in binding.parts
        for k, value in enumerate(part.instances[-1].outputs)
    }
    return list(dict.fromkeys(last[v] for v in binding.results if v in last))


def is_list_item(item: Input | None) -> bool:
    """Whether an input is one tensor of a list argument."""
    return item is not None and "." in item.name and item.argument is not None


def outer_operand(
    values: tuple[str, ...], layer: Layer, piece: int, table: VariableTable
) -> Operand:
    """How a step reads a value from outside the iterations."""
    if len(set(values)) == 1:
        return _single(values[0], piece, table)
    series = _series(values, table)
    if series is not None:
        name, shift = series
        index = Layer(layer.offset + shift, layer.in_loop)
        return InputOperand(
            name, index, None, piece if table.is_cut(values[0]) else None
        )
    options = list(dict.fromkeys(values))
    chosen = tuple(_single(value, piece, table) for value in options)
    return Choice(chosen, tuple(options.index(v) for v in values), layer)


def _single(value: str, piece: int, table: VariableTable) -> Variable | InputOperand:
    item = table.inputs.get(value)
    if item is not None and is_list_item(item):
        name, _, index = value.rpartition(".")
        return InputOperand(
            name, None, int(index), piece if table.is_cut(value) else None
        )
    if table.is_cut(value):
        return Variable(piece_name(table.sliced[value], piece, table.pieces))
    if item is not None:
        return InputOperand(value)
    return Variable(table.whole[value])


def _series(values: tuple[str, ...], table: VariableTable) -> tuple[str, int] | None:
    """`keys.0, keys.1, …`: the list argument and the index of the first tensor."""
    if not all(is_list_item(table.inputs.get(value)) for value in values):
        return None
    split = [value.rpartition(".") for value in values]
    first = int(split[0][2])
    regular = all(
        name == split[0][0] and int(number) == first + i
        for i, (name, _, number) in enumerate(split)
    )
    return (split[0][0], first) if regular else None


def operand(role: Role, layer: Layer, piece: int, table: VariableTable) -> Operand:
    """How a step in this layer reads one of its inputs."""
    match role:
        case Produced(part, k) | Carried(part, k, _):
            return Variable(table.output(part, k, piece))
        case Outer(values):
            return outer_operand(values, layer, piece, table)


def after_operand(role: Role, table: VariableTable) -> Operand:
    """How `before` and `after` read: whole values only."""
    match role:
        case Produced(part, k) if table.pieces > 1:
            return Variable(table.merged[(part, k)])
        case Produced(part, k):
            return Variable(table.outputs[(part, k)])
        case Outer((value,)) if value in table.inputs:
            return input_operand(table.inputs[value])
        case Outer((value,)):
            return Variable(table.whole[value])
        case _:
            raise AssertionError(f"{role} outside the iterations")


def input_operand(item: Input) -> InputOperand:
    """A whole argument, or a whole tensor of a list argument."""
    if is_list_item(item):
        name, _, index = item.name.rpartition(".")
        return InputOperand(name, None, int(index), None)
    return InputOperand(item.name)
