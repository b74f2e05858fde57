"""Look-ups in a graph, built once: who makes a value, who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynaflow_dsl.graph.model import Argument, Graph, Input, Operation, Reference, Value


@dataclass(frozen=True, slots=True)
class GraphIndex:
    """Tables over one graph.

    `operations` and `inputs` are by name, `order` is an operation's place in program
    order. `values` are all values by name, `producers` the operation that makes a value
    (inputs have none), `readers` the names of the operations that take a value as an
    argument, in program order, each once; writers of a value are readers of it too.
    `storages` are the names of the values that share a storage, in order of appearance.
    """

    graph: Graph
    operations: Mapping[str, Operation]
    order: Mapping[str, int]
    inputs: Mapping[str, Input]
    values: Mapping[str, Value]
    producers: Mapping[str, str]
    readers: Mapping[str, tuple[str, ...]]
    storages: Mapping[int, tuple[str, ...]]

    def sharing(self, name: str) -> tuple[str, ...]:
        """Names of all values that share memory with this one, itself included."""
        return self.storages[self.values[name].storage]


def index_graph(graph: Graph) -> GraphIndex:
    """The look-up tables of a graph."""
    values: dict[str, Value] = {item.value.name: item.value for item in graph.inputs}
    producers: dict[str, str] = {}
    readers: dict[str, list[str]] = {name: [] for name in values}
    for operation in graph.operations:
        for name in read_values(operation):
            readers[name].append(operation.name)
        for value in operation.results:
            if value is not None:
                values[value.name] = value
                producers[value.name] = operation.name
                readers[value.name] = []
    storages: dict[int, list[str]] = {}
    for value in values.values():
        storages.setdefault(value.storage, []).append(value.name)
    return GraphIndex(
        graph=graph,
        operations={operation.name: operation for operation in graph.operations},
        order={operation.name: k for k, operation in enumerate(graph.operations)},
        inputs={item.name: item for item in graph.inputs},
        values=values,
        producers=producers,
        readers={name: tuple(names) for name, names in readers.items()},
        storages={storage: tuple(names) for storage, names in storages.items()},
    )


def read_values(operation: Operation) -> tuple[str, ...]:
    """Names of the values among an operation's arguments, each once, in order."""
    arguments = (*operation.arguments, *(item for _, item in operation.keywords))
    return tuple(dict.fromkeys(_references(arguments)))


def _references(argument: Argument) -> Iterator[str]:
    match argument:
        case Reference(name):
            yield name
        case tuple():
            for element in argument:
                yield from _references(element)
