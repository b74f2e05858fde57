"""What each input of a part is: made where, carried, or the same for every layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.model import GAP, Carried, Outer, Place, Produced, Role
from dynaflow_dsl.bind.programs import Grouped, Mismatch
from dynaflow_dsl.graph.model import TensorType

Token: TypeAlias = tuple[str, ...]

OUTER: Token = ("outer",)

# What a gap inside the section made: it goes before what the last iteration made.
REPLACED: Token = ("gap",)


class Made(NamedTuple):
    """Who makes a value: a part in an iteration, or the gap of that number."""

    part: str
    iteration: int
    output: int


@dataclass(frozen=True, slots=True)
class Origins:
    """Makers of all values that cross a border, but those of `before` and `after`.

    `home` is the section of each part, `gaps` the place of each gap.
    """

    made: Mapping[str, Made]
    home: Mapping[str, int]
    gaps: Sequence[Place]


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
    part: str,
    grouped: Grouped,
    origins: Origins,
    initials: dict[tuple[str, int], str],
    dependence: Dependence,
) -> tuple[list[Role], list[tuple[str, ...]]]:
    """The roles of a part's inputs, and each iteration's value for each of them.

    `initials` are the values that carried outputs start from; new ones are added.
    """
    count = len(grouped.fragments)
    section = origins.home[part]
    typical = 1 if count > 1 else 0
    tokens = [
        [_token(section, i, name, origins) for name in fragment.inputs]
        for i, fragment in enumerate(grouped.fragments)
    ]
    _none_from_afar(part, tokens)
    slots: list[Slot] = []
    seen: set[int] = set()
    for i in (typical, *range(1, count), 0):
        body = grouped.body_of[i]
        if body not in seen:
            seen.add(body)
            pair = (typical, i)
            _match(part, pair, body, grouped, tokens[i], slots, initials, dependence)
    roles, columns = [], []
    for slot in slots:
        names = _names(part, slot, grouped)
        row = [
            tokens[i][slot.positions[grouped.body_of[i]]]
            if grouped.body_of[i] in slot.positions
            else OUTER
            for i in range(count)
        ]
        role = _role(part, row, names)
        if isinstance(role, Carried) and role.part != GAP:
            known = initials.setdefault((role.part, role.output), role.initial)
            if known != role.initial:
                reason = f"what {role.part} made before it starts as two values"
                raise Mismatch(part, (0, typical), reason)
        roles.append(role)
        columns.append(names)
    order = sorted(range(len(roles)), key=lambda k: _rank(roles[k]))
    values = [tuple(columns[k][i] for k in order) for i in range(count)]
    return [roles[k] for k in order], values


def carried(part: str, grouped: Grouped, origins: Origins) -> int:
    """How many values of the iteration before a part reads that its first iteration
    may read in another order; none when it runs the same program."""
    if len(grouped.fragments) == 1 or grouped.body_of[0] == grouped.body_of[1]:
        return 0
    section = origins.home[part]
    tokens = [_token(section, 1, name, origins) for name in grouped.fragments[1].inputs]
    return sum(token[0] == "previous" for token in tokens)


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
    """The value of a slot in every iteration; those that ignore it get another's.

    That must not be one that the iteration reads otherwise: a program would have two
    inputs of one name.
    """
    names: list[str] = []
    given: dict[str, None] = {slot.name: None}
    lacking: list[int] = []
    for i, fragment in enumerate(grouped.fragments):
        position = slot.positions.get(grouped.body_of[i])
        names.append(slot.name if position is None else fragment.inputs[position])
        if position is None:
            lacking.append(i)
        else:
            given[names[i]] = None
    for i in lacking:
        inputs = grouped.fragments[i].inputs
        near = (names[i - 1],) if i > 0 else ()
        filler = next((n for n in (*near, *given) if n not in inputs), None)
        if filler is None:
            other = next(k for k in range(len(names)) if k not in lacking)
            raise Mismatch(part, (i, other), f"only the second reads {slot.name}")
        names[i] = filler
    return names


def _token(section: int, i: int, name: str, origins: Origins) -> Token:
    made = origins.made.get(name)
    if made is None:
        return OUTER
    if made.part == GAP:
        place = origins.gaps[made.iteration]
        inside = place.section == section and place.iteration > 0
        return REPLACED if inside else OUTER
    if origins.home[made.part] != section:
        return OUTER
    if made.iteration == i:
        return ("same", made.part, str(made.output))
    if made.iteration == i - 1:
        return ("previous", made.part, str(made.output))
    return ("far", made.part, str(made.iteration))


def _role(part: str, row: Sequence[Token], names: Sequence[str]) -> Role:
    first, *others = row
    if REPLACED in others:
        return _replaced(part, row, names)
    later = row[-1]
    for i, token in enumerate(others, 1):
        if token != later:
            raise Mismatch(part, (i, len(row) - 1), _say(token, later))
    match first, later:
        case (("outer",), ("outer",)):
            return Outer(tuple(names))
        case (("same", *_), ("same", made_by, output)) if first == later:
            return Produced(made_by, int(output))
        case (("outer",), ("previous", made_by, output)):
            return Carried(made_by, int(output), names[0])
        case _:
            raise Mismatch(part, (0, len(row) - 1), _say(first, later))


def _replaced(part: str, row: Sequence[Token], names: Sequence[str]) -> Role:
    """An input that gaps make, where there are any, and else the iteration before.

    Until a gap has run it may as well be what the first iteration reads.
    """
    gap = row.index(REPLACED)
    if row[0] != OUTER:
        raise Mismatch(part, (0, gap), _say(row[0], REPLACED))
    kept = [(i, token) for i, token in enumerate(row) if token != REPLACED and i > 0]
    for i, token in kept:
        as_first = token == OUTER and names[i] == names[0]
        if not (as_first or (token[0] == "previous" and token == kept[-1][1])):
            raise Mismatch(part, (i, gap), _say(token, REPLACED))
    match kept[-1][1] if kept else REPLACED:
        case ("previous", made_by, output):
            return Carried(made_by, int(output), names[0])
        case _:
            return Carried(GAP, 0, names[0])


def _say(left: Token, right: Token) -> str:
    def words(token: Token) -> str:
        match token:
            case ("same", part, _):
                return f"what {part} made in the same layer"
            case ("previous", part, _):
                return f"what {part} made in the layer before"
            case ("gap",):
                return "what was made between the layers"
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
    initials: Mapping[tuple[str, int], str],
    dependence: Dependence,
) -> None:
    """Find a program's inputs among the slots; outer values may make new ones.

    Inputs made by parts are told apart by their maker, the same outer value by its
    name, this layer's cache by the list it is in, and the remaining ones (another mask)
    by type, in order.
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

    take(lambda slot, p, token: slot.token == token != OUTER and token != REPLACED)
    take(
        lambda slot, p, token: (
            slot.type == types[p]
            and REPLACED in (slot.token, token)
            and {slot.token[0], token[0]} <= {"previous", "gap"}
        )
    )
    take(lambda slot, p, token: slot.token == token and slot.name == names[p])
    if i == 0:
        # What later layers carry comes from outside here.
        take(lambda slot, p, token: initials.get(_maker(slot.token)) == names[p])
    take(
        lambda slot, p, token: (
            slot.token == token
            and slot.type == types[p]
            and _list_of(slot.name) == _list_of(names[p]) != ""
        )
    )
    if i == 0:
        take(lambda slot, p, token: slot.token != OUTER and slot.type == types[p])
    take(lambda slot, p, token: slot.token == token and slot.type == types[p])
    carried = [s for s in slots if body not in s.positions and s.token != OUTER]
    if i == 0 and len(carried) == 1 == len(free):
        # Another type: layer 0 may read the first value through views of its own.
        take(lambda slot, p, token: slot is carried[0] and token == OUTER)
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


def _maker(token: Token) -> tuple[str, int]:
    """Part and output of what a token stands for."""
    return (token[1], int(token[2])) if token[0] == "previous" else ("", 0)


def _list_of(name: str) -> str:
    """Name of the list argument that an input is in, or nothing."""
    before, _, index = name.rpartition(".")
    return before if index.isdigit() else ""


def _words(token: Token) -> str:
    if token == REPLACED:
        return "what was made between the layers"
    return f"what {token[1]} made" if len(token) > 1 else "it"
