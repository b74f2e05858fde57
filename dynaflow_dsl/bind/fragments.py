"""The graph cut along the borders of parts, views copied to where they are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.ownership import AFTER_OWNER, Owner, Ownership
from dynaflow_dsl.graph.model import (
    Argument,
    Constant,
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
)
from dynaflow_dsl.operations.effects import hidden_memory

DEVICE = "device"

MODEL_TENSORS = frozenset({"parameter", "buffer"})

ProgramKey: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class Fragment:
    """One owner's operations with copied views, and what crosses its border."""

    numbers: list[int]
    inputs: list[str]
    parameters: list[str]
    constants: list[Input]
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
    constants = {i.name: i for i in graph.inputs if i.kind == "constant"}
    by_owner: dict[Owner, Fragment] = {}
    for mine in numbers.values():
        read = [name for n in mine for name in dependence.operand_names[n]]
        _copy_views(mine, read, dependence)
    _copy_views(numbers[AFTER_OWNER], graph.outputs, dependence)
    read_outside: set[str] = set(graph.outputs)
    maker: dict[str, Owner] = {}
    for owner, mine in numbers.items():
        if not mine:
            continue
        fragment = fragment_of(
            sorted(mine), graph, dependence, model_tensors, constants
        )
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


def fragment_of(
    numbers: list[int],
    graph: Graph,
    dependence: Dependence,
    model_tensors: Collection[str],
    constants: Mapping[str, Input],
) -> Fragment:
    """Operations with what crosses their border; their program has no key yet.

    `model_tensors` and `constants` are the names that count as such.
    """
    made: set[str] = set()
    inputs: dict[str, None] = {}
    parameters: dict[str, None] = {}
    literal: dict[str, Input] = {}
    for number in numbers:
        for name in dependence.operand_names[number]:
            if name in constants:
                literal[name] = constants[name]
            elif name not in made:
                (parameters if name in model_tensors else inputs)[name] = None
        results = dependence.operations[number].results
        made.update(value.name for value in results if value is not None)
    fragment = Fragment(numbers, list(inputs), list(parameters), [*literal.values()])
    _add_sizes(fragment, graph, dependence)
    return fragment


def _add_sizes(fragment: Fragment, graph: Graph, dependence: Dependence) -> None:
    """Let a fragment read an input that has a size or device it cannot read elsewhere.

    Its text takes sizes off its tensors; a state made by `zeros(batch, ...)` has none.
    """
    given = [
        dependence.values[n].type for n in (*fragment.inputs, *fragment.parameters)
    ]
    known = {
        size.dimensions[0]
        for type_ in given
        for size in type_.shape
        if len(size.dimensions) == 1
    }
    used = {
        name
        for number in fragment.numbers
        for argument in _arguments(dependence.operations[number])
        for name in symbols(argument)
    }
    arguments = [item for item in graph.inputs if item.argument is not None]
    for dimension in sorted(used - known - {DEVICE}):
        whole = Size(1, (dimension,))
        fragment.inputs += [
            item.name for item in arguments if whole in item.value.type.shape
        ][:1]
    if DEVICE in used and not (fragment.inputs or fragment.parameters):
        fragment.inputs += [item.name for item in arguments][:1]


def _arguments(operation: Operation) -> tuple[Argument, ...]:
    return (*operation.arguments, *(value for _, value in operation.keywords))


def symbols(argument: Argument) -> Iterator[str]:
    """Names of the dimensions in an argument, and `device` where it has the device."""
    match argument:
        case Size(_, dimensions):
            yield from dimensions
        case Constant("device"):
            yield DEVICE
        case tuple():
            for item in argument:
                yield from symbols(item)


def program_key(
    fragment: Fragment, dependence: Dependence, types: Mapping[str, TensorType]
) -> ProgramKey:
    """Equal keys, equal programs: operators, literals, wiring, types of what enters."""
    place: dict[str, object] = {}
    for prefix, names in (("i", fragment.inputs), ("w", fragment.parameters)):
        place.update((name, f"{prefix}{k}") for k, name in enumerate(names))
    for item in fragment.constants:
        place[item.name] = (item.value.type, repr(item.data))

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


def touched(
    numbers: Iterable[int], dependence: Dependence
) -> tuple[tuple[str, bool], ...]:
    """Inputs and hidden memory that the operations read or (True) write.

    Tensors of the model are left out unless something writes them.
    """
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
        for name, writes in hidden_memory(operation.operator).items():
            found[name] = found.get(name, False) or writes
    return tuple(found.items())
