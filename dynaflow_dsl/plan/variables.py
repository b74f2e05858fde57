"""Names for all variables of one program, chosen before anything is issued."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.bind.kernels import types_of
from dynaflow_dsl.bind.model import (
    GAP,
    Binding,
    BoundPart,
    Carried,
    Outer,
    Output,
    Place,
)
from dynaflow_dsl.graph.model import Input, Operation, TensorType
from dynaflow_dsl.plan.in_place import Candidates
from dynaflow_dsl.plan.names import WHOLE, Names, Words, piece_name, role_name
from dynaflow_dsl.resolve.model import MAIN

CARRIED_NAME = "hidden"


class Maker(NamedTuple):
    """What makes a value: a part in an iteration, or the gap of that number."""

    part: str
    iteration: int
    output: int

    @property
    def key(self) -> Output:
        """The result, whatever the iteration."""
        gap = self.iteration if self.part == GAP else 0
        return Output(self.part, self.output, gap)


@dataclass(frozen=True, slots=True)
class VariableTable:
    """Names of all variables of one program.

    `endings` are what ends the names of each piece's variables.
    `makers` are the parts and gaps that make values. `bases[n]` is the base name of
    variable n of the binding; `whole[value]` the name of a value that exists once (a
    result of `before` or `after`), `sliced` the values that are cut into pieces up
    front, with their base names, `aliases` carried variables that start as another
    variable or input: name to value. `merged[value]` names what is made of the pieces
    for `after` and for the caller, who gets nothing from another stream, `gathered[n]`
    what is made of the pieces of variable n for a step that takes all of them. Those in
    `written` are made before their parts run, which write them: value to name.
    `series` keeps which values are the tensors of a list, in order: every step asks.
    """

    binding: Binding
    endings: tuple[str, ...]
    inputs: Mapping[str, Input]
    makers: Mapping[str, Maker]
    types: Mapping[str, TensorType]
    gap_at: Mapping[Place, int]
    bases: Sequence[str]
    whole: Mapping[str, str]
    sliced: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    gathered: Mapping[int, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    series: dict[tuple[str, ...], tuple[str, int] | None] = field(
        default_factory=dict, compare=False
    )

    def base(self, key: Output) -> str:
        """The name of a result, without a piece."""
        return self.bases[self.binding.variables[key]]

    def output(self, key: Output, piece: int | None) -> str:
        """Variable of one piece of a result, or of all of it (None)."""
        base = self.base(key)
        return base if piece is None else piece_name(base, piece, self.endings)

    @property
    def pieces(self) -> int:
        """Number of microbatches."""
        return len(self.endings)

    @property
    def piece_names(self) -> tuple[str, ...]:
        """What the schedule calls them."""
        return self.binding.schedule.piece_names if self.pieces > 1 else WHOLE

    def is_cut(self, value: str) -> bool:
        """Whether steps read pieces of a value rather than the whole."""
        return self.pieces > 1 and value in self.binding.axes

    @property
    def whole_states(self) -> frozenset[str]:
        """Names of what parts that take all pieces make."""
        return frozenset(
            self.base(key) for key in self.binding.variables if self.is_joined(key.part)
        )

    def is_joined(self, part: str) -> bool:
        """Whether a part runs once though the program is split."""
        return self.pieces > 1 and part in self.binding.joined

    def is_made_on_main(self, value: str) -> bool:
        """Whether what steps write is made on main, and not with the first of them.

        What is returned has to be; steps of several streams know of each other's
        memory in no other way.
        """
        part, binding = self.makers[value].part, self.binding
        streams = {stream_of(part, binding, k) for k in range(self.pieces)}
        return len(streams) > 1 or (
            value in binding.results and value in self.merged and streams != {MAIN}
        )

    def is_whole(self, value: str) -> bool:
        """Whether a value of a part or a gap is made in one."""
        return self.pieces == 1 or self.makers[value].part in self.binding.joined


def find_makers(binding: Binding) -> dict[str, Maker]:
    """The maker of every value that a part or a gap gives away."""
    return {
        value: Maker(part.name, i, k)
        for part in binding.inner
        for i, instance in enumerate(part.instances)
        for k, value in enumerate(instance.outputs)
        # A result that one iteration alone does not read has no name there.
        if value
    }


def state_of(part: BoundPart, position: int, makers: Mapping[str, Maker]) -> Output:
    """What makes a carried input in later iterations."""
    values = (instance.inputs[position] for instance in part.instances[1:])
    return next(makers[value].key for value in values if value in makers)


def make_variables(
    binding: Binding, endings: tuple[str, ...], streams: Sequence[str], words: Words
) -> VariableTable:
    """Choose all names: carried values first, then parts, then what surrounds them."""
    inputs = {item.name: item for item in binding.graph.inputs}
    makers = find_makers(binding)
    pieces = len(endings)
    names = Names(words.taken, endings)
    initials = _initials(binding, pieces, makers)
    bases = _bases(binding, names, makers)
    outer = _read_from_outside(binding)
    whole: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for number, value in initials.items():
        if value in inputs or value in outer or value in whole:
            aliases[bases[number]] = value
        else:
            whole[value] = bases[number]
    outside = [part for part in (binding.before, binding.after) if part is not None]
    for part in outside:
        for value, wanted in zip(part.bodies[0].outputs, _named(part, 0), strict=True):
            if value not in whole:
                whole[value] = names.new(wanted)
    sliced: dict[str, str] = {}
    merged: dict[str, str] = {}
    gathered: dict[int, str] = {}
    written: dict[str, str] = {}
    types = types_of(binding.graph)
    table = VariableTable(
        binding=binding,
        endings=endings,
        inputs=inputs,
        makers=makers,
        types=types,
        gap_at=_gap_places(binding),
        bases=bases,
        whole=whole,
        sliced=sliced,
        aliases=aliases,
        merged=merged,
        gathered=gathered,
        written=written,
    )
    candidates = Candidates(binding, pieces, types)
    if pieces > 1:
        for value in _cut_up_front(table):
            sliced[value] = whole.get(value) or names.for_pieces(value)
        together = _gathered(table)
        for value, number in together.items():
            if number not in gathered:
                gathered[number] = names.new(f"{bases[number]}_whole")
            if _is_gathered_in_place(value, table, candidates):
                written[value] = gathered[number]
        for value in (*_read_after(binding), *binding.results):
            if value not in makers or value in merged or table.is_whole(value):
                continue
            maker = makers[value]
            if value not in together and candidates.fits(value, *maker):
                written[value] = names.new(f"{table.base(maker.key)}_whole")
            merged[value] = written.get(value) or table.base(maker.key)
    for value in binding.results:
        if value in makers and value not in merged and table.is_whole(value):
            maker = makers[value]
            if len(streams) > 1 and stream_of(maker.part, binding) != MAIN:
                merged[value] = names.new(f"{table.base(maker.key)}_result")
                if candidates.fits(value, *maker):
                    written[value] = merged[value]
    return table


def _is_gathered_in_place(
    value: str, table: VariableTable, candidates: Candidates
) -> bool:
    """Whether the pieces that a step takes together are written as one tensor.

    It is made where the first piece is, which others' streams know nothing of.
    """
    maker, binding = table.makers[value], table.binding
    if maker.part == GAP or not candidates.fits(value, *maker):
        return False
    streams = {stream_of(maker.part, binding, k) for k in range(table.pieces)}
    # What is returned is made on main.
    return len(streams) == 1 and (value not in binding.results or streams == {MAIN})


def stream_of(part: str, binding: Binding, piece: int | None = None) -> str:
    """The stream that a piece of a part runs on as scheduled."""
    if part == GAP:
        return MAIN
    return next(p.streams[piece or 0] for p in binding.schedule.parts if p.name == part)


def bound(name: str, binding: Binding) -> BoundPart:
    """The bound part of this name, the gap, `before` and `after` included."""
    return next(part for part in binding.everything if part.name == name)


def _initials(
    binding: Binding, pieces: int, makers: Mapping[str, Maker]
) -> dict[int, str]:
    """What each carried variable holds before its section, if no part made it.

    A step that takes all pieces of what others make in pieces reads the first value as
    it is.
    """
    found: dict[int, str] = {}
    for part in binding.parts:
        for position, role in enumerate(part.roles):
            if isinstance(role, Carried) and role.initial not in makers:
                key = state_of(part, position, makers)
                gathers = part.name in binding.joined and key.part not in binding.joined
                if pieces == 1 or not gathers:
                    found.setdefault(binding.variables[key], role.initial)
    return found


def _bases(
    binding: Binding, names: Names, makers: Mapping[str, Maker]
) -> tuple[str, ...]:
    """The name of each variable of the binding."""
    variables = binding.variables
    found: dict[int, str] = {}
    for part in binding.parts:
        for position, role in enumerate(part.roles):
            if isinstance(role, Carried) and role.part != GAP:
                number = variables[state_of(part, position, makers)]
                if number not in found:
                    found[number] = names.new(CARRIED_NAME)
    for part in binding.parts:
        named = _named(part, 0)
        for k, maker in enumerate(named):
            number = variables[Output(part.name, k)]
            if number not in found:
                wanted = part.name if len(named) == 1 else f"{part.name}_{maker}"
                found[number] = names.new(wanted)
    if binding.gaps is not None:
        for n, instance in enumerate(binding.gaps.part.instances):
            for k, maker in enumerate(_named(binding.gaps.part, instance.body)):
                number = variables[Output(GAP, k, n)]
                if number not in found:
                    found[number] = names.new(maker)
    return tuple(found[number] for number in range(len(found)))


def _named(part: BoundPart, body: int) -> list[str]:
    """A name for each output of a program, from the operation that makes it."""
    made_by: dict[str, Operation] = {
        value.name: operation
        for operation in part.bodies[body].operations
        for value in operation.results
        if value is not None
    }
    return [role_name(made_by[value]) for value in part.bodies[body].outputs]


def _read_after(binding: Binding) -> tuple[str, ...]:
    return binding.after.instances[0].inputs if binding.after is not None else ()


def _read_from_outside(binding: Binding) -> set[str]:
    """Values that somebody reads as they were before the parts."""
    found = {
        value
        for part in binding.parts
        for role in part.roles
        if isinstance(role, Outer)
        for value in role.values
    }
    if binding.gaps is not None:
        for instance in binding.gaps.part.instances:
            found.update(instance.inputs)
    found.update(_read_after(binding))
    found.update(binding.results)
    return found


def _gap_places(binding: Binding) -> dict[Place, int]:
    places = binding.gaps.places if binding.gaps is not None else ()
    return {place: n for n, place in enumerate(places)}


def _cut_up_front(table: VariableTable) -> list[str]:
    """Values with one variable per piece: all that is cut, but tensors of lists.

    What starts a carried variable of another name is cut under that name. Steps that
    take all pieces need none of them.
    """
    binding, aliased = table.binding, set(table.aliases.values())
    found: dict[str, None] = {}

    def want(values: Collection[str]) -> None:
        for value in values:
            listed = is_list_item(table.inputs.get(value))
            if value in binding.axes and value not in table.makers and not listed:
                found[value] = None

    for part in binding.parts:
        if part.name in binding.joined:
            continue
        for position, role in enumerate(part.roles):
            match role:
                case Carried(_, _, initial) if initial not in aliased:
                    state = state_of(part, position, table.makers)
                    want(() if state.part in binding.joined else (initial,))
                case Outer(values):
                    want(values)
                case _:
                    pass
    if binding.gaps is not None:
        for instance in binding.gaps.part.instances:
            want(instance.inputs)
    return list(found)


def _gathered(table: VariableTable) -> dict[str, int]:
    """Values whose pieces a step takes together, with their variables."""
    binding = table.binding
    found: dict[str, int] = {}
    for part in binding.parts:
        if part.name not in binding.joined:
            continue
        for instance in part.instances:
            for value in instance.inputs:
                made = value in table.makers and value in binding.axes
                if made and not table.is_whole(value):
                    found[value] = binding.variables[table.makers[value].key]
    return found


def is_list_item(item: Input | None) -> bool:
    """Whether an input is one tensor of a list argument."""
    return item is not None and "." in item.name and item.argument is not None
