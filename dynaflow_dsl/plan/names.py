"""Readable, unique Python names for values, taken from the model's own source."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import Split

RESERVED = frozenset({"self", "w", "i", "torch", "aten", "held", "device", "main"})

# Those that every Python has: `site` adds some, and later versions exceptions.
BUILTINS = frozenset(
    name
    for name in dir(builtins)
    if name.islower()
    and name.isalpha()
    and name not in ("copyright", "credits", "exit", "license", "quit")
)

# The endings of an unsplit program's pieces, of which there is one.
WHOLE = ("0",)

# The argument of a step that says how many rows each phase has.
PHASES = "phases"

# Events that belong to no part.
BEFORE_DONE, START = "before_done", "start"

# Ends the event of a part that runs once over all pieces: no part with pieces has it.
ALL_DONE = "_all_done"


@cache
def assigned_name(code: str) -> str | None:
    """`name` when a source line assigns to a plain name, else None."""
    try:
        statements = ast.parse(code.strip()).body
    except (SyntaxError, ValueError):
        # A statement over several lines is cut off; its first line may still tell.
        found = re.match(r"\s*([A-Za-z_]\w*)\s*=(?!=)", code)
        return found.group(1) if found else None
    match statements:
        case [ast.Assign(targets=[ast.Name(id=name)])]:
            return name
        case [ast.AnnAssign(target=ast.Name(id=name))]:
            return name
        case [ast.AugAssign(target=ast.Name(id=name))]:
            return name
        case [ast.Assign(targets=[ast.Tuple(elts=[*_, ast.Name(id=name)])])]:
            # The last operation of the line makes the last target.
            return name
        case _:
            return None


def role_name(operation: Operation, *, last_of_line: bool = True) -> str:
    """What a reader of the model would call the result of an operation.

    The variable that the source line assigns, if the operation is the last of its line;
    else the module's own name (`q_proj`); else the operator's.
    """
    if last_of_line and operation.source is not None:
        name = assigned_name(operation.source.code)
        if name is not None:
            return name
    leaf = operation.module.rpartition(".")[2]
    code = operation.source.code if operation.source is not None else ""
    is_module_result = operation.operator.startswith(
        ("aten.linear", "aten.embedding")
    ) or (last_of_line and code.startswith("return "))
    if leaf and not leaf.isdigit() and is_module_result:
        return identifier(leaf)
    return identifier(operation.operator.split(".")[1])


def identifier(text: str) -> str:
    """The nearest legal Python identifier."""
    name = re.sub(r"\W", "_", text)
    name = name.strip("_") or "value"
    if name[0].isdigit() or keyword.iskeyword(name):
        name = f"{name}_" if keyword.iskeyword(name) else f"_{name}"
    return name


def free_name(wanted: str, taken: set[str]) -> str:
    """A name that is neither taken nor a builtin; it is taken then."""
    name, number = wanted, 2
    if wanted in BUILTINS:
        name = f"{wanted}_1"
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


@dataclass(frozen=True, slots=True)
class Words:
    """What the schedule and the model name, as variables of the step.

    `index` is the base of the pieces' slices, and `pieces` ends the names of what
    belongs to each; the rest maps names to variables.
    """

    arguments: Mapping[str, str]
    streams: Mapping[str, str]
    index: str
    events: frozenset[str]
    pieces: tuple[str, ...]

    def piece(self, number: int) -> str:
        """The variable of one slice."""
        return f"{self.index}_{self.pieces[number]}"

    @property
    def taken(self) -> frozenset[str]:
        """All of these variables."""
        count = len(self.pieces)
        slices = map(self.piece, range(count if count > 1 else 0))
        named = (*self.arguments.values(), *self.streams.values(), *slices)
        return self.events.union(named)


def spell(binding: Binding, streams: Sequence[str]) -> Words:
    """Spell arguments, streams (main first) and pieces so that no two are the same."""
    split = binding.schedule.split
    pieces = piece_endings(split)
    # Of the split step and of the sequential one, whose parts have a piece each.
    events = {
        f"{piece_name(part.name, k, endings)}_done"
        for part in binding.inner
        for endings in (WHOLE, pieces)
        for k in range(len(endings))
    }
    events |= {f"{part}{ALL_DONE}" for part in binding.joined}
    taken = {*events, BEFORE_DONE, START, *RESERVED, *BUILTINS}
    if split is not None and split.phases:
        taken.add(PHASES)

    def spelled(name: str) -> str:
        name = identifier(name)
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    arguments = {name: spelled(name) for name, _ in binding.graph.signature}
    main, *others = streams
    known = {main: main, **{name: spelled(name) for name in others}}
    index = split.index if split is not None else ""
    while any(f"{index}_{ending}" in taken for ending in pieces):
        index += "_"
    return Words(
        arguments, known, index, frozenset((*events, BEFORE_DONE, START)), pieces
    )


class Names:
    """Hands out names that do not collide, each with all its piece suffixes."""

    def __init__(self, taken: Collection[str], pieces: Sequence[str]) -> None:
        self._taken = set(taken) | RESERVED | BUILTINS
        self._pieces = pieces

    def new(self, wanted: str) -> str:
        """A base name whose `name_0`, `name_1`, … are free as well."""
        return self._first(wanted, whole=True)

    def for_pieces(self, base: str) -> str:
        """The base of piece names alone: `base` itself may be taken."""
        return self._first(base, whole=False)

    def _first(self, wanted: str, *, whole: bool) -> str:
        wanted = identifier(wanted)
        for candidate in (wanted, *(f"{wanted}_{letter}" for letter in _letters())):
            pieces = self._pieces if len(self._pieces) > 1 else ()
            family = {f"{candidate}_{ending}" for ending in pieces}
            if whole:
                family.add(candidate)
            if not family & self._taken:
                self._taken |= family
                return candidate
        raise AssertionError("letters never run out")


def _letters() -> list[str]:
    alphabet = "bcdefghijklmnopqrstuvwxyz"
    return [*alphabet, *(a + b for a in alphabet for b in alphabet)]


def piece_endings(split: Split | None) -> tuple[str, ...]:
    """What ends the names of variables of each piece: its number, or its phase.

    Numbers where a phase ends like another one: `a` of phase `b_c` would have the name
    of `a_b` of phase `c`.
    """
    if split is None:
        return WHOLE
    names = split.pieces
    if any(name.endswith(f"_{other}") for name in names for other in names):
        return tuple(map(str, range(len(names))))
    return names


def piece_label(part: str, piece: int, pieces: Sequence[str]) -> str:
    """A step in the words of the schedule: `attn`, `attn[0]` or `attn[decode]`."""
    return part if len(pieces) == 1 else f"{part}[{pieces[piece]}]"


def piece_name(base: str, piece: int, pieces: Sequence[str]) -> str:
    """`base` for an unsplit value, `base_0` or `base_decode` for a piece."""
    return base if len(pieces) == 1 else f"{base}_{pieces[piece]}"
