"""What the instances of a part have in common: their programs, inputs and outputs.

Equal layers share one program. Position k of the inputs means the same thing in every
instance, so one call text serves all iterations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.model import (
    Body,
    BoundPart,
    Carried,
    Instance,
    Outer,
    Produced,
    Role,
)
from dynaflow_dsl.bind.ownership import AFTER_OWNER, BEFORE_OWNER, Owner, Ownership
from dynaflow_dsl.graph.model import Argument, Graph, Reference, TensorType

MODEL_TENSORS = frozenset({"parameter", "buffer", "constant"})

ProgramKey: TypeAlias = tuple[object, ...]


class Mismatch(Exception):
    """Two iterations of a part that are connected differently; caught in `bind`."""

    def __init__(self, part: str, iterations: tuple[int, int], reason: str) -> None:
        super().__init__(reason)
        self.part, self.iterations, self.reason = part, iterations, reason


@dataclass(slots=True)
class Fragment:
    """One owner's operations with copied views, and the values that cross its border."""

    numbers: list[int]
    inputs: list[str]
    parameters: list[str]
    key: ProgramKey = ()


@dataclass(frozen=True, slots=True)
class Fragments:
    """All fragments of a graph, and which owner made which value."""

    by_owner: Mapping[Owner, Fragment]
    maker: Mapping[str, Owner]
    read_outside: frozenset[str]


def cut(graph: Graph, dependence: Dependence, ownership: Ownership) -> Fragments:
    """Sort operations by owner, copy views to where they are used, find the borders."""
    numbers: dict[Owner, set[int]] = defaultdict(set)
    for number, owner in ownership.owner.items():
        numbers[owner].add(number)
    model_tensors = {i.name for i in graph.inputs if i.kind in MODEL_TENSORS}
    by_owner: dict[Owner, Fragment] = {}
    for owner, mine in numbers.items():
        read = [name for n in mine for name in dependence.operand_names[n]]
        _copy_views(mine, read, dependence)
    _copy_views(numbers[AFTER_OWNER], graph.outputs, dependence)
    read_outside: set[str] = set(graph.outputs)
    maker: dict[str, Owner] = {}
    for owner, mine in numbers.items():
        if not mine:
            continue
        fragment = _border(sorted(mine), dependence, model_tensors)
        by_owner[owner] = fragment
        read_outside.update(fragment.inputs)
        for number in mine:
            operation = dependence.operations[number]
            if not operation.view or owner == AFTER_OWNER:
                maker.update(
                    (v.name, owner) for v in operation.results if v is not None
                )
    types = {name: value.type for name, value in dependence.values.items()}
    for fragment in by_owner.values():
        fragment.key = program_key(fragment, dependence, types)
    return Fragments(by_owner, maker, frozenset(read_outside))


def _copy_views(mine: set[int], names: Iterable[str], dependence: Dependence) -> None:
    stack = list(names)
    while stack:
        number = dependence.producer.get(stack.pop())
        if number is None or number in mine or not dependence.operations[number].view:
            continue
        mine.add(number)
        stack.extend(dependence.operand_names[number])


def _border(
    numbers: list[int], dependence: Dependence, model_tensors: set[str]
) -> Fragment:
    made: set[str] = set()
    inputs: dict[str, None] = {}
    parameters: dict[str, None] = {}
    for number in numbers:
        for name in dependence.operand_names[number]:
            if name not in made:
                (parameters if name in model_tensors else inputs)[name] = None
        results = dependence.operations[number].results
        made.update(value.name for value in results if value is not None)
    return Fragment(numbers, list(inputs), list(parameters))


def program_key(
    fragment: Fragment, dependence: Dependence, types: Mapping[str, TensorType]
) -> ProgramKey:
    """Equal keys, equal programs: operators, literals, wiring, types of what enters."""
    place: dict[str, str] = {}
    for prefix, names in (("i", fragment.inputs), ("w", fragment.parameters)):
        place.update((name, f"{prefix}{k}") for k, name in enumerate(names))

    def encode(argument: Argument) -> object:
        match argument:
            case Reference(name):
                return ("ref", place[name])
            case tuple():
                return tuple(map(encode, argument))
            case bool() | int() | float() | str() | None:
                return (type(argument).__name__, repr(argument))
            case _:
                return argument

    key: list[object] = [types[n] for n in (*fragment.inputs, *fragment.parameters)]
    for step, number in enumerate(fragment.numbers):
        operation = dependence.operations[number]
        key.append(
            (
                operation.operator,
                tuple(map(encode, operation.arguments)),
                tuple((name, encode(value)) for name, value in operation.keywords),
            )
        )
        for k, value in enumerate(operation.results):
            if value is not None:
                place[value.name] = f"t{step}.{k}"
    return tuple(key)


@dataclass(slots=True)
class _Grouped:
    """Instances of one part by program, with the outputs of each program."""

    fragments: list[Fragment]
    body_of: list[int]
    outputs: list[list[tuple[int, int]]]  # per program: (step, result)


def _group(
    fragments: list[Fragment], dependence: Dependence, read_outside: frozenset[str]
) -> _Grouped:
    bodies: dict[ProgramKey, int] = {}
    body_of = [bodies.setdefault(f.key, len(bodies)) for f in fragments]
    places: list[set[tuple[int, int]]] = [set() for _ in bodies]
    for fragment, body in zip(fragments, body_of, strict=True):
        for step, number in enumerate(fragment.numbers):
            operation = dependence.operations[number]
            if operation.view:
                continue
            for k, value in enumerate(operation.results):
                if value is not None and value.name in read_outside:
                    places[body].add((step, k))
    return _Grouped(fragments, body_of, [sorted(p) for p in places])


def bind_parts(
    names: Sequence[str],
    iterations: int,
    fragments: Fragments,
    dependence: Dependence,
    attached: frozenset[str],
) -> tuple[list[BoundPart], dict[str, tuple[str, int, int]]]:
    """Programs, instances and roles of all parts of the `each`.

    Also says, for each value that leaves a part: (part, iteration, output). Raises
    Mismatch when two iterations are connected differently.
    """
    grouped: dict[str, _Grouped] = {}
    for name in names:
        mine = [fragments.by_owner[Owner(name, i)] for i in range(iterations)]
        grouped[name] = _group(mine, dependence, fragments.read_outside)
    origin: dict[str, tuple[str, int, int]] = {}
    for name, group in grouped.items():
        for i in range(iterations):
            for output, value in enumerate(_outputs(group, i, dependence)):
                origin[value] = (name, i, output)
    parts = []
    for name, group in grouped.items():
        roles, order = _roles(name, group, origin, dependence)
        parts.append(_bound(name, group, roles, order, dependence, attached))
    return parts, origin


def _outputs(group: _Grouped, i: int, dependence: Dependence) -> list[str]:
    fragment = group.fragments[i]
    found = []
    for step, k in group.outputs[group.body_of[i]]:
        value = dependence.operations[fragment.numbers[step]].results[k]
        # A result that this layer alone does not read has no name in its graph.
        found.append(value.name if value is not None else "")
    return found


def touched(
    numbers: Iterable[int], dependence: Dependence
) -> tuple[tuple[str, bool], ...]:
    """Step inputs whose memory the operations read or (True) write."""
    found: dict[str, bool] = {}
    for number in numbers:
        operation = dependence.operations[number]
        if operation.view:
            continue
        for names, writes in (
            (dependence.operand_names[number], False),
            (operation.writes, True),
        ):
            for name in names:
                item = dependence.input_of_storage.get(dependence.values[name].storage)
                if item is not None:
                    found[item] = found.get(item, False) or writes
    return tuple(found.items())


Token: TypeAlias = tuple[str, ...]


def _token(i: int, name: str, origin: Mapping[str, tuple[str, int, int]]) -> Token:
    if name not in origin:
        return ("outer",)
    part, iteration, output = origin[name]
    if iteration == i:
        return ("same", part, str(output))
    if iteration == i - 1:
        return ("previous", part, str(output))
    return ("far", part, str(iteration))


def _roles(
    part: str,
    group: _Grouped,
    origin: Mapping[str, tuple[str, int, int]],
    dependence: Dependence,
) -> tuple[list[Role], list[list[int]]]:
    """Roles of the inputs, and for each program the position of each role's input."""
    count = len(group.fragments)
    typical = 1 if count > 1 else 0
    tokens = [
        [_token(i, name, origin) for name in fragment.inputs]
        for i, fragment in enumerate(group.fragments)
    ]
    for i, row in enumerate(tokens):
        for token in row:
            if token[0] == "far":
                raise Mismatch(
                    part, (i, int(token[2])), f"it reads what {token[1]} made there"
                )
    order: list[list[int] | None] = [None] * len(group.outputs)
    order[group.body_of[typical]] = list(range(len(tokens[typical])))
    for i in (*range(1, count), 0):
        if order[group.body_of[i]] is None:
            order[group.body_of[i]] = _match(
                part, group, tokens, typical, i, dependence
            )
    known = [positions for positions in order if positions is not None]
    roles: list[Role] = []
    for k in range(len(tokens[typical])):
        row = [tokens[i][known[group.body_of[i]][k]] for i in range(count)]
        names = [
            group.fragments[i].inputs[known[group.body_of[i]][k]] for i in range(count)
        ]
        roles.append(_role(part, row, names))
    return _in_reading_order(roles, known)


def _in_reading_order(
    roles: list[Role], order: list[list[int]]
) -> tuple[list[Role], list[list[int]]]:
    """What flows from layer to layer first, what is each layer's own last."""

    def rank(k: int) -> int:
        match roles[k]:
            case Carried():
                return 0
            case Produced():
                return 1
            case Outer(values):
                return 2 if len(set(values)) == 1 else 3

    positions = sorted(range(len(roles)), key=rank)
    return (
        [roles[k] for k in positions],
        [[row[k] for k in positions] for row in order],
    )


def _role(part: str, row: list[Token], names: list[str]) -> Role:
    first, later = row[0], row[-1]
    for i in range(1, len(row)):
        if row[i] != later:
            raise Mismatch(part, (i, len(row) - 1), _say(row[i], later))
    match first, later:
        case (("outer",), ("outer",)):
            return Outer(tuple(names))
        case (("same", *_), ("same", made_by, output)) if first == later:
            return Produced(made_by, int(output))
        case (("outer",), ("previous", made_by, output)):
            return Carried(made_by, int(output), names[0])
        case _:
            raise Mismatch(part, (0, len(row) - 1), _say(first, later))


def _say(left: Token, right: Token) -> str:
    def words(token: Token) -> str:
        match token:
            case ("same", part, _):
                return f"what {part} made in the same layer"
            case ("previous", part, _):
                return f"what {part} made in the layer before"
            case _:
                return "a value from outside the layers"

    return f"one reads {words(left)}, the other {words(right)}"


def _match(
    part: str,
    group: _Grouped,
    tokens: list[list[Token]],
    typical: int,
    i: int,
    dependence: Dependence,
) -> list[int]:
    """Positions in another program's inputs of what the typical instance reads.

    Inputs made by parts are told apart by their maker, the same outer value by its name,
    and the remaining ones (this layer's cache, another mask) by type, in order.
    """
    wanted, names = tokens[typical], group.fragments[typical].inputs
    free = dict(enumerate(tokens[i]))
    mine = group.fragments[i].inputs
    if len(wanted) != len(free):
        raise Mismatch(part, (typical, i), "they read different numbers of values")
    found: dict[int, int] = {}

    def take(accept: Callable[[int, Token, int, Token], bool]) -> None:
        for k, token in enumerate(wanted):
            if k in found:
                continue
            for position, other in free.items():
                if accept(k, token, position, other):
                    found[k] = position
                    del free[position]
                    break

    def same_type(k: int, position: int) -> bool:
        values = dependence.values
        return values[names[k]].type == values[mine[position]].type

    take(lambda k, token, p, other: token == other != ("outer",))
    take(lambda k, token, p, other: token == other and names[k] == mine[p])
    take(lambda k, token, p, other: token == other and same_type(k, p))
    if i == 0:
        take(lambda k, token, p, other: same_type(k, p))
    if len(found) != len(wanted):
        raise Mismatch(part, (typical, i), "they read values of different kinds")
    return [found[k] for k in range(len(wanted))]


def _bound(
    name: str,
    group: _Grouped,
    roles: list[Role],
    order: list[list[int]],
    dependence: Dependence,
    attached: frozenset[str],
) -> BoundPart:
    instances = []
    for i, fragment in enumerate(group.fragments):
        body = group.body_of[i]
        instances.append(
            Instance(
                body,
                tuple(dependence.operations[n].name for n in fragment.numbers),
                tuple(fragment.inputs[p] for p in order[body]),
                tuple(fragment.parameters),
                tuple(_outputs(group, i, dependence)),
                touched(fragment.numbers, dependence),
            )
        )
    bodies = []
    for body in range(len(group.outputs)):
        first = group.body_of.index(body)
        instance = instances[first]
        bodies.append(
            Body(
                tuple(dependence.operations[n] for n in group.fragments[first].numbers),
                instance.inputs,
                instance.parameters,
                instance.outputs,
            )
        )
    mine = {o for instance in instances for o in instance.operations}
    return BoundPart(
        name, tuple(bodies), tuple(instances), tuple(roles), frozenset(mine & attached)
    )


def bind_outside(
    owner: Owner,
    fragments: Fragments,
    origin: Mapping[str, tuple[str, int, int]],
    last: int,
    graph: Graph,
    dependence: Dependence,
) -> BoundPart | None:
    """`before` or `after` as a part of one instance; None when it is empty."""
    fragment = fragments.by_owner.get(owner)
    if fragment is None:
        return None
    roles: list[Role] = []
    for name in fragment.inputs:
        made_by = origin.get(name)
        if made_by is None:
            roles.append(Outer((name,)))
        elif made_by[1] != last:
            raise Mismatch(
                owner.part, (made_by[1], last), "it is read after the layers"
            )
        else:
            roles.append(Produced(made_by[0], made_by[2]))
    results = set(graph.outputs) if owner == AFTER_OWNER else fragments.read_outside
    outputs = tuple(
        dict.fromkeys(
            value.name
            for number in fragment.numbers
            for value in dependence.operations[number].results
            if value is not None
            and value.name in results
            and fragments.maker.get(value.name) == owner
        )
    )
    operations = tuple(dependence.operations[number] for number in fragment.numbers)
    inputs, parameters = tuple(fragment.inputs), tuple(fragment.parameters)
    names = tuple(operation.name for operation in operations)
    return BoundPart(
        owner.part,
        (Body(operations, inputs, parameters, outputs),),
        (
            Instance(
                0,
                names,
                inputs,
                parameters,
                outputs,
                touched(fragment.numbers, dependence),
            ),
        ),
        tuple(roles),
        frozenset(),
    )


__all__ = [
    "AFTER_OWNER",
    "BEFORE_OWNER",
    "Fragments",
    "Mismatch",
    "bind_outside",
    "bind_parts",
    "cut",
]
