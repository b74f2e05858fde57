"""A short digest of what a graph computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TypeAlias

from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Operation,
    Reference,
    TensorType,
    Value,
)
from dynaflow_dsl.graph.text import write_argument, write_type


def graph_digest(graph: Graph) -> str:
    """12 hex digits over operations, types and inputs.

    Values count by their position, so names that a tracer made up do not matter, nor do
    source lines. Paths of modules and names of inputs do: schedules speak of them.
    Schedules may speak of functions and marks too, but those only say how the model's
    code is written: what a schedule makes of them shows in the module.
    """
    return short_digest(graph_content(graph, lambda _, item: item, write_type))


def short_digest(content: object) -> str:
    """12 hex digits of what JSON can write."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


# What is written of an argument of an operation, or of an input's data (of None).
Written: TypeAlias = Callable[[Operation | None, Argument], Argument]


def graph_content(
    graph: Graph, written: Written, type_text: Callable[[TensorType], str]
) -> list[object]:
    """All that `graph_digest` is of, with arguments and types as they are written."""
    numbers: dict[str, int] = {}

    def value(item: Value | None) -> object:
        if item is None:
            return None
        numbers[item.name] = len(numbers)
        return [type_text(item.type), storages.setdefault(item.storage, len(storages))]

    def argument(item: Argument, operation: Operation | None = None) -> object:
        kept = written(operation, item)
        return write_argument(_renamed(kept, lambda name: str(numbers[name])))

    storages: dict[int, int] = {}
    content: list[object] = [
        graph.entry,
        graph.dimensions,
        graph.signature,
        [
            # The data of a constant is made of tuples of numbers, as arguments are.
            [i.kind, i.name, value(i.value), i.argument, argument(i.data)]  # type: ignore[arg-type]
            for i in graph.inputs
        ],
    ]
    content.extend(
        [
            operation.operator,
            [argument(item, operation) for item in operation.arguments],
            {name: argument(item, operation) for name, item in operation.keywords},
            [value(result) for result in operation.results],
            operation.multiple,
            [numbers[name] for name in operation.writes],
            operation.view,
            operation.tags,
            operation.module,
        ]
        for operation in graph.operations
    )
    content.append([numbers[name] for name in graph.outputs])
    # What most graphs have not, so that their digests stay.
    if graph.phases:
        content.append(["phases", graph.phases])
    if disjoint := [item.name for item in graph.inputs if item.disjoint]:
        content.append(["disjoint", disjoint])
    if graph.context:
        content.append("context")
    return content


def _renamed(argument: Argument, rename: Callable[[str], str]) -> Argument:
    match argument:
        case Reference(name):
            return Reference(rename(name))
        case tuple():
            return tuple(_renamed(element, rename) for element in argument)
    return argument
