"""What each input of a part is: made where, carried, or the same for every layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragment, ProgramKey
from dynaflow_dsl.bind.model import Carried, Outer, Produced, Role
from dynaflow_dsl.graph.model import TensorType

Origin: TypeAlias = Mapping[str, tuple[str, int, int]]

Token: TypeAlias = tuple[str, ...]

OUTER: Token = ("outer",)


class Mismatch(Exception):
    """Two iterations of a part that are connected differently; caught in `bind`."""

    def __init__(self, part: str, iterations: tuple[int, int], reason: str) -> None:
        super().__init__(reason)
        self.part, self.iterations, self.reason = part, iterations, reason


@dataclass(slots=True)
class Grouped:
    """Instances of one part by program, with the outputs of each program."""

    fragments: list[Fragment]
    body_of: list[int]
    outputs: list[list[tuple[int, int]]]  # per program: (step, result)


def group(
    fragments: list[Fragment], dependence: Dependence, read_outside: frozenset[str]
) -> Grouped:
    """Sort a part's fragments by program and find what each program gives away."""
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
    return Grouped(fragments, body_of, [sorted(p) for p in places])


def outputs(group: Grouped, i: int, dependence: Dependence) -> list[str]:
    """Names of what iteration `i` of a part gives away, in the program's order."""
    fragment = group.fragments[i]
    found = []
    for step, k in group.outputs[group.body_of[i]]:
        value = dependence.operations[fragment.numbers[step]].results[k]
        # A result that this layer alone does not read has no name in its graph.
        found.append(value.name if value is not None else "")
    return found


@dataclass(slots=True)
class Slot:
    """One input of a part: its token, an example, and its position in each program.

    A program without a position does not read it.
    """

    token: Token
    name: str
    type: TensorType
    positions: dict[int, int] = field(default_factory=dict)


def find_roles(
    part: str, grouped: Grouped, origin: Origin, dependence: Dependence
) -> tuple[list[Role], list[tuple[str, ...]]]:
    """The roles of a part's inputs, and each iteration's value for each of them."""
    count = len(grouped.fragments)
    typical = 1 if count > 1 else 0
    tokens = [
        [_token(i, name, origin) for name in fragment.inputs]
        for i, fragment in enumerate(grouped.fragments)
    ]
    _none_from_afar(part, tokens)
    slots: list[Slot] = []
    seen: set[int] = set()
    for i in (typical, *range(1, count), 0):
        body = grouped.body_of[i]
        if body not in seen:
            seen.add(body)
            _match(part, (typical, i), body, grouped, tokens[i], slots, dependence)
    roles, columns = [], []
    for slot in slots:
        names = _names(part, slot, grouped)
        row = [
            tokens[i][slot.positions[grouped.body_of[i]]]
            if grouped.body_of[i] in slot.positions
            else OUTER
            for i in range(count)
        ]
        roles.append(_role(part, row, names))
        columns.append(names)
    order = sorted(range(len(roles)), key=lambda k: _rank(roles[k]))
    values = [tuple(columns[k][i] for k in order) for i in range(count)]
    return [roles[k] for k in order], values


def _none_from_afar(part: str, tokens: Sequence[Sequence[Token]]) -> None:
    for i, row in enumerate(tokens):
        for token in row:
            if token[0] == "far":
                reason = f"it reads what {token[1]} made there"
                raise Mismatch(part, (i, int(token[2])), reason)


def _rank(role: Role) -> int:
    """What flows from layer to layer first, what is each layer's own last."""
    match role:
        case Carried():
            return 0
        case Produced():
            return 1
        case Outer(values):
            return 2 if len(set(values)) == 1 else 3


def _names(part: str, slot: Slot, grouped: Grouped) -> list[str]:
    """The value of a slot in every iteration; layers that ignore it get the others'."""
    names: list[str | None] = []
    for fragment, body in zip(grouped.fragments, grouped.body_of, strict=True):
        position = slot.positions.get(body)
        names.append(None if position is None else fragment.inputs[position])
    given = {name for name in names if name is not None}
    if None in names and len(given) > 1:
        pair = (
            names.index(None),
            next(i for i, n in enumerate(names) if n is not None),
        )
        raise Mismatch(part, pair, f"only the second reads {slot.name}")
    filler = given.pop() if len(given) == 1 else ""
    return [filler if name is None else name for name in names]


def _token(i: int, name: str, origin: Origin) -> Token:
    if name not in origin:
        return OUTER
    part, iteration, output = origin[name]
    if iteration == i:
        return ("same", part, str(output))
    if iteration == i - 1:
        return ("previous", part, str(output))
    return ("far", part, str(iteration))


def _role(part: str, row: Sequence[Token], names: Sequence[str]) -> Role:
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
    iterations: tuple[int, int],
    body: int,
    grouped: Grouped,
    tokens: Sequence[Token],
    slots: list[Slot],
    dependence: Dependence,
) -> None:
    """Find a program's inputs among the slots; outer values may make new ones.

    Inputs made by parts are told apart by their maker, the same outer value by its
    name, and the remaining ones (this layer's cache, another mask) by type, in order.
    """
    i = iterations[1]
    names = grouped.fragments[i].inputs
    types = [dependence.values[name].type for name in names]
    free = dict(enumerate(tokens))

    def take(accept: Callable[[Slot, int, Token], bool]) -> None:
        for slot in slots:
            if body in slot.positions:
                continue
            for position, token in free.items():
                if accept(slot, position, token):
                    slot.positions[body] = position
                    del free[position]
                    break

    take(lambda slot, p, token: slot.token == token != OUTER)
    take(lambda slot, p, token: slot.token == token and slot.name == names[p])
    take(lambda slot, p, token: slot.token == token and slot.type == types[p])
    if i == 0:
        # What later layers carry comes from outside here.
        take(lambda slot, p, token: slot.type == types[p])
    lacking = [s for s in slots if body not in s.positions and s.token != OUTER]
    if slots and (lacking or any(token != OUTER for token in free.values())):
        wanted = (
            lacking[0].token
            if lacking
            else next(t for t in free.values() if t != OUTER)
        )
        raise Mismatch(part, iterations, f"only one of them reads {_words(wanted)}")
    for position, token in free.items():
        slot = Slot(token, names[position], types[position], {body: position})
        slots.append(slot)


def _words(token: Token) -> str:
    return f"what {token[1]} made" if len(token) > 1 else "it"
