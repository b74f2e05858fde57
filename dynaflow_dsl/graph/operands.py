"""Which values an operation names."""

from __future__ import annotations

from collections.abc import Iterator

from dynaflow_dsl.graph.model import Argument, Operation, Reference


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
