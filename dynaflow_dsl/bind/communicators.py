"""Which communicator carries the collectives of a part.

A graph names the role of a process group. Each stream has a communicator of its own
for each role, so that none is used from two streams: `tp` is that of main, and
`tp:comm` one of the same ranks for the stream `comm`. The runtime makes it when a
module is loaded.
"""

from __future__ import annotations

from dataclasses import replace

from dynaflow_dsl.bind.model import Binding, Body, BoundPart
from dynaflow_dsl.bind.uses import group_of, is_collective
from dynaflow_dsl.graph.model import Graph, Operation, Value
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.operations.aliases import COLLECTIVES
from dynaflow_dsl.operations.names import matches_operator
from dynaflow_dsl.resolve.model import MAIN

# Operators whose groups are looked up by a name that the runtime can give to one. What
# a plug-in's operator does with the name of its group is its own affair.
_BY_NAME = ("_c10d_functional.", "_c10d_functional_autograd.", "dynaflow.")

# Collectives to which every rank brings as many rows as the others.
_ALIKE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def streams_of(part: BoundPart, binding: Binding) -> tuple[str, ...]:
    """The streams that steps of a part run on, each once; main for what surrounds."""
    found = next((p.streams for p in binding.schedule.parts if p.name == part.name), ())
    return tuple(dict.fromkeys(found)) or (MAIN,)


def communicator(operation: Operation, streams: tuple[str, ...]) -> str | None:
    """The name of the group that an operation of a part on these streams uses.

    None where it is no collective. Pieces of one part that run on several streams share
    a communicator: the part is one text.
    """
    if not is_collective(operation) or (role := group_of(operation)) is None:
        return None
    if streams == (MAIN,) or not operation.operator.startswith(_BY_NAME):
        return role
    return f"{role}:{'+'.join(streams)}"


def communicators(part: BoundPart, binding: Binding) -> tuple[str, ...]:
    """The groups that the text of a part names, in its order."""
    streams = streams_of(part, binding)
    names = (
        communicator(operation, streams)
        for body in part.bodies
        for operation in body.operations
    )
    return tuple(dict.fromkeys(name for name in names if name is not None))


def with_communicators(body: Body, streams: tuple[str, ...]) -> Body:
    """A program whose collectives name communicators instead of roles."""
    return replace(
        body, operations=tuple(_renamed(each, streams) for each in body.operations)
    )


def _renamed(operation: Operation, streams: tuple[str, ...]) -> Operation:
    name, role = communicator(operation, streams), group_of(operation)
    if name is None or name == role:
        return operation
    keywords = list(operation.keywords)
    for n, (key, value) in reversed(list(enumerate(keywords))):
        if isinstance(value, str):
            keywords[n] = key, name
            return replace(operation, keywords=tuple(keywords))
    arguments = list(operation.arguments)
    last = max(n for n, value in enumerate(arguments) if isinstance(value, str))
    arguments[last] = name
    return replace(operation, arguments=tuple(arguments))


def alike(graph: Graph, group: str) -> frozenset[str]:
    """Dimensions of which the ranks of a group have equally many.

    Its collectives bring their rows together one by one, as an all-reduce does.
    """
    values: dict[str, Value] = {item.name: item.value for item in graph.inputs}
    found: set[str] = set()
    for operation in graph.operations:
        if group_of(operation) == group and _is_alike(operation):
            for name in read_values(operation):
                for size in values[name].type.shape:
                    found |= set(size.dimensions)
        values.update((v.name, v) for v in operation.results if v is not None)
    return frozenset(found)


def alike_in_kernels(binding: Binding) -> frozenset[str]:
    """Dimensions of which ranks have equally many because they meet in a kernel.

    Its ranks share memory for what the collectives return that it stands for, and each
    makes as much as the others.
    """
    through = {kernel.part for kernel in binding.kernels}
    return frozenset(
        name
        for part in binding.parts
        if part.name in through
        for body in part.bodies
        for operation in body.operations
        if is_collective(operation)
        for value in operation.results
        if value is not None
        for size in value.type.shape
        for name in size.dimensions
    )


def _is_alike(operation: Operation) -> bool:
    return any(
        matches_operator(pattern, operation.operator)
        for kind in _ALIKE
        for pattern in COLLECTIVES[kind]
    )
