"""Which values an operation names."""

from __future__ import annotations

from collections.abc import Iterable

from dynaflow_dsl.graph.model import Argument, Operation, Reference


def read_values(operation: Operation) -> tuple[str, ...]:
    """Names of the values among an operation's arguments, each once, in order."""
    found: dict[str, None] = {}
    _collect(operation.arguments, found)
    if operation.keywords:
        _collect((item for _, item in operation.keywords), found)
    return tuple(found)


def _collect(arguments: Iterable[Argument], found: dict[str, None]) -> None:
    for argument in arguments:
        if isinstance(argument, Reference):
            found[argument.name] = None
        elif isinstance(argument, tuple):
            _collect(argument, found)
