"""Which memory is read and written where, as far as microbatches change it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.graph.rowwise.model import Fact, Shared

# These copy or view depending on strides. In a microbatch of one row they may view what
# the whole batch copies, since the stride of an axis of size 1 does not count.
MAY_COPY = frozenset(
    {
        "aten.contiguous.default",
        "aten.flatten.using_ints",
        "aten.reshape.default",
        "aten.reshape_as.default",
    }
)


@dataclass(frozen=True, slots=True)
class Access:
    """One operation that reads or writes the content of a storage."""

    index: int
    operation: str
    inside: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class Storages:
    """Where storages come from and who touches them, in program order.

    `reads` are the values that each operation is given, by its name; `storage_of` is by
    value name. `made_inside` are allocated once per microbatch.
    `entering` are the whole values that the region reads, by storage. Making a view in
    the region touches nothing; reading a graph output comes after the last operation.
    """

    reads: Mapping[str, tuple[str, ...]]
    storage_of: Mapping[str, int]
    made_inside: frozenset[int]
    inputs: frozenset[int]
    written: frozenset[int]
    entering: Mapping[int, tuple[str, ...]]
    accesses: Mapping[int, tuple[Access, ...]]

    def is_sliced(self, storage: int) -> bool:
        """Say whether microbatches see slices of one whole storage."""
        return storage not in self.made_inside or storage in self.entering


def find_storages(graph: Graph, region: frozenset[str]) -> Storages:
    """Collect who makes and touches each storage."""
    reads = {operation.name: read_values(operation) for operation in graph.operations}
    storage_of = {item.value.name: item.value.storage for item in graph.inputs}
    inputs = frozenset(storage_of.values())
    made_outside, made_inside, made_by_region = set(inputs), set(), set()
    entering: defaultdict[int, dict[str, None]] = defaultdict(dict)
    accesses: defaultdict[int, list[Access]] = defaultdict(list)
    written: set[int] = set()
    for index, operation in enumerate(graph.operations):
        inside = operation.name in region
        writes = {storage_of[name] for name in operation.writes}
        written |= writes
        for name in reads[operation.name]:
            storage = storage_of[name]
            if inside and name not in made_by_region:
                entering[storage][name] = None
            # Outside, a view of what microbatches make is a view of their copy.
            if not operation.view or not inside:
                accesses[storage].append(
                    Access(index, operation.name, inside, storage in writes)
                )
        for value in operation.results:
            if value is None:
                continue
            storage_of[value.name] = value.storage
            if inside:
                made_by_region.add(value.name)
            if inside and value.storage not in made_outside:
                made_inside.add(value.storage)
            elif value.storage not in made_inside:
                made_outside.add(value.storage)
    end = len(graph.operations)
    for name in graph.outputs:
        accesses[storage_of[name]].append(Access(end, "", False, False))
    return Storages(
        reads,
        storage_of,
        frozenset(made_inside),
        inputs,
        frozenset(written),
        {storage: tuple(names) for storage, names in entering.items()},
        {storage: tuple(found) for storage, found in accesses.items()},
    )


def hazards(
    graph: Graph, region: frozenset[str], storages: Storages, facts: Mapping[str, Fact]
) -> Iterator[tuple[str, str]]:
    """Yield operations, and why, whose writes microbatches see otherwise."""
    for storage in sorted(storages.made_inside & storages.written):
        yield from _written_on_both_sides(storages.accesses.get(storage, ()))
    yield from _written_after_maybe_copied(graph, region, storages, facts)


def _written_on_both_sides(accesses: tuple[Access, ...]) -> Iterator[tuple[str, str]]:
    """Find writes that the other side misses.

    What microbatches make is put together for readers outside by a copy, so from the
    first reader on there are two memories where the whole batch has one.
    """
    outside = [access for access in accesses if not access.inside]
    inside = [access for access in accesses if access.inside]
    if not outside:
        return
    for access in inside:
        if access.writes and access.index > outside[0].index:
            yield (
                access.operation,
                "writes in place what was put together for a reader outside before",
            )
    for access in inside:
        if any(other.writes and other.index < access.index for other in outside):
            yield (
                access.operation,
                "uses what was changed in place outside after microbatches made it",
            )


def _written_after_maybe_copied(
    graph: Graph, region: frozenset[str], storages: Storages, facts: Mapping[str, Fact]
) -> Iterator[tuple[str, str]]:
    """Find copies that are views in a microbatch of one row, and show a later write."""
    links: list[tuple[int, str, int, int]] = []
    for index, operation in enumerate(graph.operations):
        if operation.operator not in MAY_COPY:
            continue
        source = storages.reads[operation.name][0]
        # Outside, what was put together may have another layout than the whole had.
        made = storages.storage_of[source] in storages.made_inside
        if operation.name not in region and not made:
            continue
        result = operation.results[0]
        if result is None or isinstance(facts.get(source, Shared()), Shared):
            continue
        # One storage without a view: new memory at the traced size, old at others.
        if not operation.view:
            pair = (storages.storage_of[source], result.storage)
            links.append((index, operation.name, *pair))
    linked = {storage for _, _, *pair in links for storage in pair}
    for storage in sorted(linked & storages.written):
        for access in storages.accesses.get(storage, ()):
            if access.writes:
                yield from _seen_elsewhere(access, storage, links, storages)


def _seen_elsewhere(
    write: Access,
    storage: int,
    links: list[tuple[int, str, int, int]],
    storages: Storages,
) -> Iterator[tuple[str, str]]:
    """Follow the copies made before a write to storages that are used after it."""
    reached: dict[int, str] = {}
    pending = [storage]
    for current in pending:
        for index, operation, one, other in links:
            if index > write.index or current not in (one, other):
                continue
            following = other if current == one else one
            # Coming back to the written storage says nothing; a link of its own does.
            if following == storage and one != other:
                continue
            if following not in reached:
                reached[following] = operation
                pending.append(following)
    for following, operation in reached.items():
        used = any(
            access.index > write.index
            for access in storages.accesses.get(following, ())
        )
        if used or following in storages.inputs:
            yield (
                operation,
                "copies or views depending on the number of rows, and one of the two "
                "is written in place afterwards",
            )
