"""What ranks compare of graphs that are not the same.

A rank may be traced by itself, and then has numbers of its own in its graph: the rows
of the vocabulary that it holds, its share of a size. Nothing is wrong with that while
all ranks run the same operations and meet in the same collectives. So two digests are
kept beside that of the graph: of its operations apart from their numbers, and of its
collectives with theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dynaflow_dsl.bind.uses import group_of, groups, is_collective
from dynaflow_dsl.graph.digest import graph_content, short_digest
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Operation,
    Reference,
    Size,
    TensorType,
    Value,
)
from dynaflow_dsl.graph.text import write_argument, write_type


class RankDigests(NamedTuple):
    """Digests of one graph, each of 12 hex digits."""

    operations: str
    collectives: str


def rank_digests(graph: Graph) -> RankDigests | None:
    """The digests of a graph's operations and collectives; None without collectives.

    Truth values, texts, dtypes, and the number of dimensions are no numbers. Groups
    count by where they come first: ranks may call theirs by other names.
    """
    named = groups(graph)
    if not named:
        return None
    numbered = {name: f"group {number}" for number, name in enumerate(named)}
    return RankDigests(
        short_digest(_operations(graph, numbered)),
        short_digest(_collectives(graph, numbered)),
    )


def _operations(graph: Graph, groups: Mapping[str, str]) -> list[object]:
    """The content of a graph without numbers."""

    def written(operation: Operation | None, item: Argument) -> Argument:
        kept = _apart_from_numbers(item)
        return _regrouped(operation, kept, groups)

    return graph_content(graph, written, _kind_of_type)


def _collectives(graph: Graph, groups: Mapping[str, str]) -> list[object]:
    """Each collective with what it is given and returns, values by their types."""
    types: dict[str, TensorType] = {}

    def note(value: Value | None) -> str | None:
        if value is None:
            return None
        types[value.name] = value.type
        return write_type(value.type)

    def written(operation: Operation, item: Argument) -> object:
        match item:
            case Reference(name):
                return write_type(types[name])
            case tuple():
                return [written(operation, each) for each in item]
        return write_argument(_regrouped(operation, item, groups))

    for item in graph.inputs:
        note(item.value)
    found: list[object] = []
    for operation in graph.operations:
        results = [note(each) for each in operation.results]
        if is_collective(operation):
            found.append(
                [
                    operation.operator,
                    [written(operation, each) for each in operation.arguments],
                    {name: written(operation, v) for name, v in operation.keywords},
                    results,
                ]
            )
    return found


def _regrouped(
    operation: Operation | None, item: Argument, groups: Mapping[str, str]
) -> Argument:
    """The name of a collective's group by its number."""
    if operation is None or not is_collective(operation) or not isinstance(item, str):
        return item
    return groups[item] if item == group_of(operation) else item


def _apart_from_numbers(item: Argument) -> Argument:
    match item:
        case bool():
            return item
        case int() | float():
            return 0
        case Size(_, dimensions):
            return Size(1, dimensions) if dimensions else 0
        case tuple():
            return tuple(map(_apart_from_numbers, item))
    return item


def _kind_of_type(type_: TensorType) -> str:
    """A type with its dimensions by name, `*` for one of a number."""
    sizes = ("*".join(size.dimensions) or "*" for size in type_.shape)
    return f"{type_.dtype}[{', '.join(sizes)}]"
