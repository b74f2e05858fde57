"""Operations that no part took: where they run, or why they cannot.

What no part needs runs after all parts, what needs no part before them. What lies
between two iterations is a gap: it runs before the first iteration that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.faults import sections_exchanged, sections_mixed, unclaimed
from dynaflow_dsl.bind.model import GAP, Place
from dynaflow_dsl.bind.ownership import (
    AFTER_OWNER,
    BEFORE_OWNER,
    Owner,
    Ownership,
    Paths,
    attach_own,
)
from dynaflow_dsl.bind.selectors import Modules, Scope
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import Section


@dataclass(frozen=True, slots=True)
class Reach:
    """For each operation the first iteration that needs it, directly or through
    others, and the last one that it needs; None where there is none."""

    first: Sequence[Place | None]
    last: Sequence[Place | None]


def place_the_rest(
    sections: Sequence[Section],
    paths: Paths,
    modules: Modules,
    result: Ownership,
    dependence: Dependence,
) -> list[Diagnostic]:
    """Operations of no part: before all parts, after them, between iterations, or an
    error in between."""
    home = {part.name: s for s, each in enumerate(sections) for part in each.parts}
    faults = list(section_order(sections, home, result, dependence))
    if faults:
        return faults
    outside = [s for s, section in enumerate(sections) if section.each is None]
    reach = find_reach(home, result, dependence)
    for s in outside:
        here = Place(s, 0)
        scope = Scope(modules, paths[s], 0, {p.name: p for p in sections[s].parts})
        between = [
            number
            for number in modules.at.get("", ())
            if number not in result.owner
            and reach.first[number] == reach.last[number] == here
        ]
        attach_own(scope, between, result, dependence)
    gaps: dict[int, Place] = {}
    left: dict[Place, list[Operation]] = {}
    for number, operation in enumerate(dependence.operations):
        if number in result.owner or operation.view:
            continue
        first, last = reach.first[number], reach.last[number]
        # What neither leads to a part nor follows one is made where it is read: after.
        if first is None:
            result.owner[number] = AFTER_OWNER
        elif last is None:
            result.owner[number] = BEFORE_OWNER
        elif last < first:
            gaps[number] = first
        else:
            left.setdefault(first, []).append(operation)
    result.gaps += sorted(set(gaps.values()))
    for number, place in gaps.items():
        result.owner[number] = Owner(GAP, result.gaps.index(place))
    if not left:
        return []
    section = min(place.section for place in left)
    mine = [
        o for place, found in left.items() if place.section == section for o in found
    ]
    return [unclaimed(sections[section], paths[section], mine)]


def find_reach(
    home: Mapping[str, int], result: Ownership, dependence: Dependence
) -> Reach:
    """Follow every dependence once in each direction; `home` has each part's section.

    An operation of a part needs its own iteration.
    """
    count = len(dependence.operations)
    own: list[Place | None] = [None] * count
    for number, owner in result.owner.items():
        own[number] = Place(home[owner.part], owner.iteration)
    last = list(own)
    for number in range(count):
        found = [last[n] for n in dependence.needs[number]]
        last[number] = max(
            (p for p in (own[number], *found) if p is not None), default=None
        )
    first = list(own)
    for number in reversed(range(count)):
        found = [first[n] for n in dependence.needed_by[number]]
        first[number] = min(
            (p for p in (own[number], *found) if p is not None), default=None
        )
    return Reach(first, last)


def section_order(
    sections: Sequence[Section],
    home: Mapping[str, int],
    result: Ownership,
    dependence: Dependence,
) -> Iterator[Diagnostic]:
    """A section may read what earlier ones make, and nothing of later ones."""
    needed: list[frozenset[int]] = []
    reads: dict[tuple[int, int], int] = {}
    for number in range(len(dependence.operations)):
        found = frozenset[int]().union(*(needed[n] for n in dependence.needs[number]))
        owner = result.owner.get(number)
        if owner is not None:
            section = home[owner.part]
            for other in found - {section}:
                reads.setdefault((section, other), number)
            found |= {section}
        needed.append(found)
    for (reader, maker), number in sorted(reads.items()):
        if maker < reader:
            continue
        operation = dependence.operations[number]
        part = result.owner[number].part
        if (maker, reader) in reads:
            yield sections_mixed(sections[reader], sections[maker], part, operation)
        else:
            yield sections_exchanged(sections[reader], sections[maker], part, operation)
        return
