"""Every part must run in one go: nothing may leave it and come back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.faults import against_order, layers_differ, not_convex
from dynaflow_dsl.bind.ownership import Owner, Ownership, Paths
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resolve.model import Section

Edge = tuple[Owner, Owner]


def quotient(
    ownership: Ownership, dependence: Dependence
) -> dict[Edge, tuple[int, int]]:
    """Edges between owners, each with one pair of operations that causes it.

    Views pass edges through: they are copied into their readers.
    """
    edges: dict[Edge, tuple[int, int]] = {}
    for number, owner in sorted(ownership.owner.items()):
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
    sections: Sequence[Section],
    paths: Paths,
    ownership: Ownership,
    dependence: Dependence,
) -> tuple[list[tuple[str, ...]], Diagnostic | None]:
    """The parts of each section in program order, or why there is none."""
    edges = quotient(ownership, dependence)
    sorter: TopologicalSorter[Owner] = TopologicalSorter()
    for maker, reader in edges:
        sorter.add(reader, maker)
    try:
        sorter.prepare()
    except CycleError as error:
        return [], _explain(error.args[1], sections, edges, dependence)
    orders = []
    for section, mine in zip(sections, paths, strict=True):
        order, fault = _order(section, mine, ownership, edges, dependence)
        if fault is not None:
            return [], fault
        orders.append(order)
    return orders, None


def _order(
    section: Section,
    paths: Sequence[str],
    ownership: Ownership,
    edges: Mapping[Edge, tuple[int, int]],
    dependence: Dependence,
) -> tuple[tuple[str, ...], Diagnostic | None]:
    first = {part.name: len(dependence.operations) for part in section.parts}
    for number, owner in ownership.owner.items():
        if owner.part in first:
            first[owner.part] = min(first[owner.part], number)
    inner = {
        edge: pair
        for edge, pair in edges.items()
        if edge[0].part in first and edge[1].part in first
    }
    parts = {part.name: part for part in section.parts}
    for (maker, reader), (_, reads_at) in inner.items():
        if maker.iteration > reader.iteration:
            there = (paths[reader.iteration], paths[maker.iteration])
            operation = dependence.operations[reads_at]
            return (), against_order(parts[reader.part], maker.part, there, operation)
    order, stuck = _sorted_parts(first, inner)
    if stuck is None:
        return order, None
    where = tuple(paths[edge[1].iteration] for edge in stuck)
    reason = f"{stuck[0][0].part} comes before it in only one of them"
    part = parts[stuck[0][1].part]
    return (), layers_differ(section, part, reason, (where[0], where[1]))


def _sorted_parts(
    first: Mapping[str, int], edges: Iterable[Edge]
) -> tuple[tuple[str, ...], tuple[Edge, Edge] | None]:
    """Parts in one order that fits all iterations; if there is none, two edges of
    different iterations that no order fits."""
    needs: dict[str, dict[str, Edge]] = defaultdict(dict)
    for edge in edges:
        maker, reader = edge
        if maker.iteration == reader.iteration:
            needs[reader.part].setdefault(maker.part, edge)
    order: list[str] = []
    waiting = sorted(first, key=lambda name: first[name])
    while waiting:
        ready = next((n for n in waiting if needs[n].keys() <= set(order)), None)
        if ready is None:
            return (), _disagreement(waiting[0], needs, set(order))
        order.append(ready)
        waiting.remove(ready)
    return tuple(order), None


def _disagreement(
    name: str, needs: Mapping[str, Mapping[str, Edge]], done: set[str]
) -> tuple[Edge, Edge]:
    """Walk from reader to maker until a part comes again: the ring mixes iterations,
    since within one of them there is none."""
    ring: list[Edge] = []
    while name not in [edge[1].part for edge in ring]:
        edge = next(e for maker, e in needs[name].items() if maker not in done)
        ring.append(edge)
        name = edge[0].part
    ring = ring[[edge[1].part for edge in ring].index(name) :]
    other = next(e for e in ring if e[0].iteration != ring[0][0].iteration)
    return ring[0], other


def _explain(
    cycle: list[Owner],
    sections: Sequence[Section],
    edges: Mapping[Edge, tuple[int, int]],
    dependence: Dependence,
) -> Diagnostic:
    # graphlib lists the cycle from reader to maker or the other way; ask the edges.
    loop = cycle if (cycle[0], cycle[1]) in edges else cycle[::-1]
    parts = {part.name: part for section in sections for part in section.parts}
    ring = loop[:-1]
    # The part that leaves first must come back later, for operations along the ring
    # are in order but for one turn. The other parts merely lie on the way.
    turns = [
        (edges[(owner, following)][0], edges[(before, owner)][1], owner, following)
        for before, owner, following in zip(
            (ring[-1], *ring), ring, (*ring[1:], ring[0]), strict=False
        )
        if owner.part in parts
    ]
    leaves_at, returns_at, owner, following = min(turns)
    return not_convex(
        parts[owner.part],
        following.part,
        dependence.operations[leaves_at],
        dependence.operations[returns_at],
    )
