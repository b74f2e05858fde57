"""Which operation belongs to which part.

The rules are those of the language: selectors first, `rest` next, then the iteration's
own operations attach. What is left is the matter of `remainder`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.faults import (
    no_iterations,
    shared_operation,
)
from dynaflow_dsl.bind.model import AFTER, BEFORE, Place
from dynaflow_dsl.bind.selectors import (
    Modules,
    Scope,
    contains_rest,
    evaluate,
    match_each,
    match_modules,
)
from dynaflow_dsl.bind.unmatched import no_iteration_having, without_operations
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resolve.model import Part, Section


class Owner(NamedTuple):
    """A part in an iteration, or the gap of a number. `before` and `after` have 0."""

    part: str
    iteration: int


BEFORE_OWNER = Owner(BEFORE, 0)
AFTER_OWNER = Owner(AFTER, 0)

# The modules that each section runs for.
Paths: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Ownership:
    """Owner of every operation that is not a view, and what attached to parts.

    `gaps` are the iterations before which there is a gap, in the order of its number.
    """

    owner: dict[int, Owner] = field(default_factory=dict)
    attached: set[int] = field(default_factory=set)
    gaps: list[Place] = field(default_factory=list)


def iteration_paths(
    section: Section, modules: Modules, dependence: Dependence
) -> tuple[str, ...]:
    """Modules that a section runs for, in the order in which they run."""

    def first_operation(path: str) -> int:
        return min(modules.below.get(path, ()), default=len(dependence.operations))

    if section.each is None:
        return ("",)
    found = match_each(section.each, modules, modules.below)
    return tuple(sorted(found, key=first_operation))


def assign(
    sections: Sequence[Section], modules: Modules, dependence: Dependence
) -> tuple[Ownership, Paths, list[Diagnostic]]:
    """Give operations to the parts of all sections; the iterations' paths; what is
    wrong."""
    paths = tuple(iteration_paths(each, modules, dependence) for each in sections)
    found = [
        _no_iterations(section, modules)
        for section, mine in zip(sections, paths, strict=True)
        if not mine
    ]
    result = Ownership()
    if found:
        return result, paths, found
    for section, mine in zip(sections, paths, strict=True):
        named = {part.name: part for part in section.parts}
        here = [Scope(modules, mine, index, named) for index in range(len(mine))]
        found += without_operations(section.parts, here)
    if found:
        return result, paths, found
    parts = {part.name: part for section in sections for part in section.parts}
    scopes = [
        Scope(modules, mine, index, {part.name: part for part in section.parts})
        for section, mine in zip(sections, paths, strict=True)
        for index in range(len(mine))
    ]
    # With `prev` and `next` a part takes from its neighbours, so `rest` comes last.
    for scope in scopes:
        found += _select(scope, parts, result, dependence, rest=False)
    # The rest of the whole model is what the rests of its layers leave.
    for scope in sorted(scopes, key=lambda scope: not scope.path):
        scope = _with_rest(scope, result)
        found += _select(scope, parts, result, dependence, rest=True)
    if found:
        return result, paths, _first_of_each_kind(found)
    for scope in scopes:
        # What the model itself does around its parts is no part of them.
        if scope.path:
            own = modules.at.get(scope.path, frozenset())
            attach_own(scope, own, result, dependence)
    return result, paths, []


def _no_iterations(section: Section, modules: Modules) -> Diagnostic:
    each = section.each
    assert each is not None
    matched = match_modules(modules, "", each.path.pattern)
    running = [path for path in matched if path in modules.below]
    if running and each.having is not None:
        return no_iteration_having(each, each.having, running, modules)
    return no_iterations(each, modules, matched=bool(matched))


def _with_rest(scope: Scope, result: Ownership) -> Scope:
    own = scope.modules.at.get(scope.path, frozenset())
    below = scope.modules.below.get(scope.path, frozenset())
    rest = frozenset(n for n in below if n not in own and n not in result.owner)
    return Scope(scope.modules, scope.iterations, scope.index, scope.parts, rest)


def _select(
    scope: Scope,
    parts: Mapping[str, Part],
    result: Ownership,
    dependence: Dependence,
    *,
    rest: bool,
) -> Iterator[Diagnostic]:
    """Give away what the parts with (or without) `rest` name in one iteration."""
    for name, part in scope.parts.items():
        if contains_rest(part.selector) != rest:
            continue
        numbers = evaluate(part.selector, scope)
        clash = sorted(number for number in numbers if number in result.owner)
        if clash:
            other = result.owner[clash[0]]
            elsewhere = other.part in scope.parts and other.iteration != scope.index
            yield shared_operation(
                parts[other.part],
                part,
                [dependence.operations[number] for number in clash],
                same_iteration=not elsewhere,
            )
        owner = Owner(name, scope.index)
        result.owner.update((n, owner) for n in numbers if n not in result.owner)


def attach_own(
    scope: Scope, own: Collection[int], result: Ownership, dependence: Dependence
) -> None:
    """Own operations go to their first reader's part, else to their last operand's."""
    loose = {number for number in own if number not in result.owner}

    def is_mine(number: int) -> bool:
        owner = result.owner[number]
        return owner.part in scope.parts and owner.iteration == scope.index

    for number in sorted(loose):
        readers = _through(number, loose, result, dependence, forward=True)
        mine = [n for n in readers if is_mine(n)]
        if mine:
            result.owner[number] = result.owner[min(mine)]
        else:
            operands = _through(number, loose, result, dependence, forward=False)
            mine = [n for n in operands if is_mine(n)]
            if not mine:
                continue
            result.owner[number] = result.owner[max(mine)]
        result.attached.add(number)


def _through(
    start: int,
    loose: set[int],
    result: Ownership,
    dependence: Dependence,
    *,
    forward: bool,
) -> list[int]:
    """Owned operations reached over views and own operations that no selector named."""
    edges = dependence.data_readers if forward else dependence.data_operands
    reached, seen, stack = [], {start}, list(edges[start])
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        if number in loose or dependence.operations[number].view:
            stack.extend(edges[number])
        elif number in result.owner:
            reached.append(number)
    return reached


def _first_of_each_kind(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The same fault in every layer is one fault."""
    first: dict[tuple[object, ...], Diagnostic] = {}
    for item in found:
        span = item.primary.span if item.primary else None
        place = (span.start, span.end) if span else None
        first.setdefault((item.code, place, item.secondary), item)
    return list(first.values())
