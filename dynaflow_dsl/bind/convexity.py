"""Every part must run in one go: nothing may leave it and come back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.faults import not_convex
from dynaflow_dsl.bind.ownership import Owner, Ownership
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resolve.model import Each

Edge = tuple[Owner, Owner]


def quotient(
    ownership: Ownership, dependence: Dependence
) -> dict[Edge, tuple[int, int]]:
    """Edges between owners, each with one pair of operations that causes it.

    Views pass edges through: they are copied into their readers.
    """
    edges: dict[Edge, tuple[int, int]] = {}
    for number, owner in ownership.owner.items():
        for needed in _through_views(dependence.needs[number], dependence):
            maker = ownership.owner.get(needed)
            if maker is not None and maker != owner:
                edges.setdefault((maker, owner), (needed, number))
    return edges


def _through_views(numbers: Iterable[int], dependence: Dependence) -> Iterable[int]:
    stack, seen = list(numbers), set[int]()
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        if dependence.operations[number].view:
            stack.extend(dependence.needs[number])
        else:
            yield number


def program_order(
    each: Each, ownership: Ownership, dependence: Dependence
) -> tuple[tuple[str, ...], Diagnostic | None]:
    """The parts of one iteration in program order, or the part that is not convex."""
    edges = quotient(ownership, dependence)
    sorter: TopologicalSorter[Owner] = TopologicalSorter()
    for maker, reader in edges:
        sorter.add(reader, maker)
    try:
        sorter.prepare()
    except CycleError as error:
        return (), _explain(error.args[1], each, edges, dependence)
    first = {part.name: len(dependence.operations) for part in each.parts}
    for number, owner in ownership.owner.items():
        if owner.part in first:
            first[owner.part] = min(first[owner.part], number)
    return _sorted_parts(first, edges), None


def _sorted_parts(
    first: dict[str, int], edges: dict[Edge, tuple[int, int]]
) -> tuple[str, ...]:
    needs: dict[str, set[str]] = defaultdict(set)
    for maker, reader in edges:
        if maker.iteration == reader.iteration and {maker.part, reader.part} <= set(
            first
        ):
            needs[reader.part].add(maker.part)
    order: list[str] = []
    waiting = sorted(first, key=lambda name: first[name])
    while waiting:
        ready = next(name for name in waiting if needs[name] <= set(order))
        order.append(ready)
        waiting.remove(ready)
    return tuple(order)


def _explain(
    cycle: list[Owner],
    each: Each,
    edges: dict[Edge, tuple[int, int]],
    dependence: Dependence,
) -> Diagnostic:
    # graphlib lists the cycle from reader to maker or the other way; ask the edges.
    loop = cycle if (cycle[0], cycle[1]) in edges else cycle[::-1]
    parts = {part.name: part for part in each.parts}
    place = next(k for k, owner in enumerate(loop) if owner.part in parts)
    ring = loop[:-1]
    owner = ring[place]
    following, before = ring[(place + 1) % len(ring)], ring[place - 1]
    leaves_at = dependence.operations[edges[(owner, following)][0]]
    returns_at = dependence.operations[edges[(before, owner)][1]]
    return not_convex(parts[owner.part], following.part, leaves_at, returns_at)
