"""What no single iteration owns: results of the model's own tensors alone.

A model may compute something from its parameters in its first layer, such as a table
of relative positions, and hand it to all others. No step has a say in it, so it runs
before the parts wherever it stands in the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynaflow_dsl.bind.dependence import Dependence, closure
from dynaflow_dsl.bind.ownership import Ownership
from dynaflow_dsl.graph.model import Graph, Operation
from dynaflow_dsl.operations.effects import hidden_memory
from dynaflow_dsl.resolve.model import Section

MODEL_OWN = frozenset({"parameter", "buffer", "constant"})


def release_shared(
    sections: Sequence[Section],
    graph: Graph,
    ownership: Ownership,
    dependence: Dependence,
) -> None:
    """Take from the parts what needs no input of the step and is read by several
    iterations, with all that it needs."""
    home = {part.name: s for s, each in enumerate(sections) for part in each.parts}
    fixed = _fixed(graph, dependence)
    shared = set()
    for number in fixed & ownership.owner.keys():
        readers = (ownership.owner.get(n) for n in _readers(number, dependence))
        # What is handed from one iteration to the next is read in one of them.
        places = {(home[o.part], o.iteration) for o in readers if o is not None}
        if len(places) > 1:
            shared.add(number)
    for number in shared | closure(shared, dependence.needs):
        ownership.owner.pop(number, None)
        ownership.attached.discard(number)


def _fixed(graph: Graph, dependence: Dependence) -> set[int]:
    """Operations that give the same in every step: they read the model's tensors only,
    and write only what others of their kind made."""
    own = {item.name for item in graph.inputs if item.kind in MODEL_OWN}
    changed = {
        dependence.values[name].storage
        for operation in graph.operations
        for name in operation.writes
        if name in own
    }
    fixed: set[int] = set()
    for number, operation in enumerate(dependence.operations):
        read = dependence.operand_names[number]
        if (
            all(_is_fixed(name, own, changed, fixed, dependence) for name in read)
            and all(name not in own for name in operation.writes)
            and fixed.issuperset(dependence.needs[number])
            and not _varies(operation)
        ):
            fixed.add(number)
    return fixed


def _is_fixed(
    name: str,
    own: set[str],
    changed: set[int],
    fixed: set[int],
    dependence: Dependence,
) -> bool:
    made_by = dependence.producer.get(name)
    if made_by is not None:
        return made_by in fixed
    return name in own and dependence.values[name].storage not in changed


def _varies(operation: Operation) -> bool:
    """Whether the result differs from step to step by chance, by memory that is no
    argument, or by the step's size."""
    sizes = (
        size
        for value in operation.results
        if value is not None
        for size in value.type.shape
    )
    chance = "random" in operation.tags or bool(hidden_memory(operation.operator))
    return chance or any(size.dimensions for size in sizes)


def _readers(number: int, dependence: Dependence) -> list[int]:
    """Who reads an operation's results, also through views."""
    found, stack = [], list(dependence.data_readers[number])
    while stack:
        reader = stack.pop()
        if dependence.operations[reader].view:
            stack.extend(dependence.data_readers[reader])
        else:
            found.append(reader)
    return found
