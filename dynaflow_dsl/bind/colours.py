"""Colours of tensors in two programs: equal where nothing tells two of them apart.

Colour refinement (the Weisfeiler-Leman method): a tensor's colour says which operation
makes it from which colours, and which operations read it where. It is made finer until
no new colours come up, which takes at most as many rounds as there are tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dynaflow_dsl.graph.model import Argument, Operation, Reference, Size

# Operators whose two tensors may be exchanged without any other rounding.
COMMUTATIVE = frozenset({"aten.add.Tensor", "aten.mul.Tensor"})

# One function by two names, where it copies nothing.
_SAME_VIEW = {"aten.reshape.default": "aten.view.default"}

Colours: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Program:
    """Operations and outputs.

    Without `scalars`, numbers, texts and sizes in arguments do not count.
    """

    operations: Sequence[Operation]
    outputs: tuple[str, ...]
    scalars: bool


def function_of(operation: Operation) -> str:
    """The operator of an operation, by one name where it has several."""
    name = operation.operator
    return _SAME_VIEW.get(name, name) if operation.view else name


def colours(
    mine: Program,
    other: Program,
    paired: Mapping[str, str],
    tensors: Mapping[str, str],
) -> tuple[Colours, Colours]:
    """Colours of the tensors of two programs, comparable with each other.

    `paired` are operations of the first with their partners in the second, `tensors`
    what the second is given with what that is in the first: each pair has a colour of
    its own.
    """
    named = [dict[str, object](), dict[str, object]()]
    for k, (one, two) in enumerate(paired.items()):
        for program, name, marks in ((mine, one, named[0]), (other, two, named[1])):
            operation = next(o for o in program.operations if o.name == name)
            marks.update((v.name, ("made", k)) for v in operation.results if v)
    for k, (two, one) in enumerate(tensors.items()):
        named[0].setdefault(one, ("given", k))
        named[1].setdefault(two, ("given", k))
    current = [dict.fromkeys(_names(program), 0) for program in (mine, other)]
    count = 1
    while True:
        numbers: dict[object, int] = {}
        finer = [
            _finer(program, known, marks, numbers)
            for program, known, marks in zip((mine, other), current, named, strict=True)
        ]
        if len(numbers) == count:
            return finer[0], finer[1]
        current, count = finer, len(numbers)


def _names(program: Program) -> list[str]:
    found = dict.fromkeys(program.outputs)
    for operation in program.operations:
        found.update(dict.fromkeys(v.name for v in operation.results if v is not None))
        for argument in (*operation.arguments, *(v for _, v in operation.keywords)):
            found.update(dict.fromkeys(_references(argument)))
    return list(found)


def _references(argument: Argument) -> list[str]:
    match argument:
        case Reference(name):
            return [name]
        case tuple():
            return [name for each in argument for name in _references(each)]
    return []


def _finer(
    program: Program,
    known: Colours,
    marks: Mapping[str, object],
    numbers: dict[object, int],
) -> dict[str, int]:
    made: dict[str, object] = {}
    readers: dict[str, list[object]] = {name: [] for name in known}
    for operation in program.operations:
        arguments = [
            *enumerate(operation.arguments),
            *operation.keywords,
        ]
        seen = [(place, _shown(program, each, known)) for place, each in arguments]
        exchanged = (
            operation.operator in COMMUTATIVE
            and not operation.keywords
            and all(isinstance(each, Reference) for each in operation.arguments)
        )
        if exchanged:
            seen = [("", text) for text in sorted(repr(shown) for _, shown in seen)]
        text = (function_of(operation), bool(operation.writes), repr(seen))
        results = repr(
            [known[v.name] if v is not None else None for v in operation.results]
        )
        for k, value in enumerate(operation.results):
            if value is not None:
                made[value.name] = (k, *text)
        for place, each in arguments:
            for name in _references(each):
                where = "" if exchanged else str(place)
                readers[name].append((where, *text, results))
    outputs = Counter(program.outputs)
    return {
        name: numbers.setdefault(
            (
                known[name],
                made.get(name),
                tuple(sorted(map(repr, readers[name]))),
                outputs[name],
                marks.get(name),
            ),
            len(numbers),
        )
        for name in known
    }


def _shown(program: Program, argument: Argument, known: Colours) -> object:
    match argument:
        case Reference(name):
            return ("tensor", known[name])
        case tuple():
            return [_shown(program, each, known) for each in argument]
        case bool() | int() | float() | str() | Size() if not program.scalars:
            return "scalar"
    return (type(argument).__name__, repr(argument))
