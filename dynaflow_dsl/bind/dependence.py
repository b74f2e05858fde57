"""Who needs whom in a graph, by data and by effects on storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from dynaflow_dsl.graph.model import Graph, Operation, Value
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.operations.effects import hidden_memory


@dataclass(frozen=True, slots=True)
class Dependence:
    """Lookups over one graph.

    Operations are numbered in program order. `needs[n]` are the operations that `n`
    must follow, and `needed_by` is the reverse; both by data and by effects.
    `data_readers[n]` are the readers of `n`'s results, `data_operands[n]` the makers of
    what `n` reads, without effects. `input_of_storage` leaves out the model's tensors
    that nothing writes.
    """

    operations: tuple[Operation, ...]
    number: Mapping[str, int]
    producer: Mapping[str, int]
    values: Mapping[str, Value]
    operand_names: tuple[tuple[str, ...], ...]
    needs: tuple[tuple[int, ...], ...]
    needed_by: tuple[tuple[int, ...], ...]
    data_readers: tuple[tuple[int, ...], ...]
    data_operands: tuple[tuple[int, ...], ...]
    input_of_storage: Mapping[int, str]


def analyse(graph: Graph) -> Dependence:
    """Build the lookups; linear in the graph."""
    operations = graph.operations
    producer: dict[str, int] = {}
    values: dict[str, Value] = {item.name: item.value for item in graph.inputs}
    names = tuple(read_values(operation) for operation in operations)
    needs: list[set[int]] = [set() for _ in operations]
    readers: list[set[int]] = [set() for _ in operations]
    # By the number of a storage, or the name of memory that is no value of the graph.
    last_write: dict[Hashable, int] = {}
    reads_since: dict[Hashable, list[int]] = defaultdict(list)
    changed: set[Hashable] = set()
    for number, operation in enumerate(operations):
        hidden = hidden_memory(operation.operator)
        written: set[Hashable] = {values[name].storage for name in operation.writes}
        written.update(name for name, writes in hidden.items() if writes)
        changed |= written
        for name in names[number]:
            if (made_by := producer.get(name)) is not None:
                needs[number].add(made_by)
                readers[made_by].add(number)
        # A view touches no memory, so it neither waits for writers nor holds them up.
        touched: set[Hashable] = set(hidden)
        if not operation.view:
            touched.update(values[name].storage for name in names[number])
        for storage in touched:
            if storage in last_write:
                needs[number].add(last_write[storage])
            if storage in written:
                needs[number].update(reads_since.pop(storage, ()))
                last_write[storage] = number
            else:
                reads_since[storage].append(number)
        needs[number].discard(number)
        for result in operation.results:
            if result is not None:
                producer[result.name] = number
                values[result.name] = result
    return Dependence(
        operations=operations,
        number={operation.name: n for n, operation in enumerate(operations)},
        producer=producer,
        values=values,
        operand_names=names,
        needs=tuple(tuple(sorted(items)) for items in needs),
        needed_by=_reverse(needs),
        data_readers=tuple(tuple(sorted(items)) for items in readers),
        data_operands=_reverse(readers),
        input_of_storage={
            item.value.storage: item.name
            for item in graph.inputs
            if item.argument is not None or item.value.storage in changed
        },
    )


def closure(start: Iterable[int], edges: tuple[tuple[int, ...], ...]) -> set[int]:
    """Everything reachable from `start` along `edges`, `start` itself left out unless
    it is reached again."""
    seen: set[int] = set()
    stack = [n for item in start for n in edges[item]]
    while stack:
        number = stack.pop()
        if number not in seen:
            seen.add(number)
            stack.extend(edges[number])
    return seen


def _reverse(edges: list[set[int]]) -> tuple[tuple[int, ...], ...]:
    reverse: list[list[int]] = [[] for _ in edges]
    for number, items in enumerate(edges):
        for item in items:
            reverse[item].append(number)
    return tuple(map(tuple, reverse))
