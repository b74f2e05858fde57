"""Which operation belongs to which part.

The rules are those of the language: selectors first, `rest` next, the iteration's own
operations attach, and what is left comes before the parts, after them, or is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.bind.dependence import Dependence, closure
from dynaflow_dsl.bind.faults import (
    empty_selector,
    no_iterations,
    shared_operation,
    unclaimed,
)
from dynaflow_dsl.bind.selectors import (
    Modules,
    Scope,
    contains_rest,
    evaluate,
    leaves,
    match_modules,
    modules_of,
)
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resolve.model import OwnSelector, Part, Section


class Owner(NamedTuple):
    """A part in an iteration. `before` and `after` have iteration 0."""

    part: str
    iteration: int


BEFORE_OWNER = Owner("before", 0)
AFTER_OWNER = Owner("after", 0)


@dataclass(slots=True)
class Ownership:
    """Owner of every operation that is not a view, and what attached to parts."""

    owner: dict[int, Owner] = field(default_factory=dict)
    attached: set[int] = field(default_factory=set)


def iteration_paths(
    each: Section, modules: Modules, dependence: Dependence
) -> list[str]:
    """Modules that the `each` repeats over, in the order in which they run."""

    def first_operation(path: str) -> int:
        return min(modules.below.get(path, ()), default=len(dependence.operations))

    found = match_modules(modules, "", each.each.path.pattern)
    return sorted((p for p in found if p in modules.below), key=first_operation)


def assign(
    each: Section, modules: Modules, dependence: Dependence
) -> tuple[Ownership, tuple[str, ...], list[Diagnostic]]:
    """Give every operation an owner; the iterations' paths; what is wrong."""
    paths = tuple(iteration_paths(each, modules, dependence))
    if not paths:
        matched = bool(match_modules(modules, "", each.each.path.pattern))
        return Ownership(), (), [no_iterations(each, modules, matched=matched)]
    parts = {part.name: part for part in each.parts}
    result = Ownership()
    found = list(_empty_selectors(each.parts, paths, modules))
    if found:
        return result, paths, found
    scopes = [Scope(modules, paths, index, parts) for index in range(len(paths))]
    # With `prev` and `next` a part takes from its neighbours, so `rest` comes last.
    for scope in scopes:
        found += _select(scope, result, dependence, rest=False)
    for scope in scopes:
        found += _select(_with_rest(scope, result), result, dependence, rest=True)
    if found:
        return result, paths, _first_of_each_kind(found)
    for index, path in enumerate(paths):
        _attach_own(index, modules.at.get(path, frozenset()), result, dependence)
    return result, paths, _outside(each, paths, result, dependence)


def _empty_selectors(
    parts: Sequence[Part], paths: tuple[str, ...], modules: Modules
) -> Iterator[Diagnostic]:
    scopes = [Scope(modules, paths, i, {}) for i in range(len(paths))]
    for part in parts:
        for leaf in leaves(part.selector):
            if any(evaluate(leaf, scope) for scope in scopes):
                continue
            path = leaf.operand if isinstance(leaf, OwnSelector) else leaf
            matched = any(modules_of(path, scope) for scope in scopes)
            yield empty_selector(leaf, path, scopes, modules, matched=matched)


def _with_rest(scope: Scope, result: Ownership) -> Scope:
    own = scope.modules.at.get(scope.path, frozenset())
    below = scope.modules.below.get(scope.path, frozenset())
    rest = frozenset(n for n in below if n not in own and n not in result.owner)
    return Scope(scope.modules, scope.iterations, scope.index, scope.parts, rest)


def _select(
    scope: Scope, result: Ownership, dependence: Dependence, *, rest: bool
) -> Iterator[Diagnostic]:
    """Give away what the parts with (or without) `rest` name in one iteration."""
    for name, part in scope.parts.items():
        if contains_rest(part.selector) != rest:
            continue
        numbers = evaluate(part.selector, scope)
        clash = sorted(number for number in numbers if number in result.owner)
        if clash:
            other = result.owner[clash[0]]
            yield shared_operation(
                scope.parts[other.part],
                part,
                [dependence.operations[number] for number in clash],
                same_iteration=other.iteration == scope.index,
            )
        owner = Owner(name, scope.index)
        result.owner.update((n, owner) for n in numbers if n not in result.owner)


def _attach_own(
    index: int, own: frozenset[int], result: Ownership, dependence: Dependence
) -> None:
    """Own operations go to their first reader's part, else to their last operand's."""
    loose = {number for number in own if number not in result.owner}
    for number in sorted(loose):
        readers = _through(number, loose, result, dependence, forward=True)
        mine = [n for n in readers if result.owner[n].iteration == index]
        if mine:
            result.owner[number] = result.owner[min(mine)]
        else:
            operands = _through(number, loose, result, dependence, forward=False)
            mine = [n for n in operands if result.owner[n].iteration == index]
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


def _outside(
    each: Section, paths: tuple[str, ...], result: Ownership, dependence: Dependence
) -> list[Diagnostic]:
    """Operations of no part: before all parts, after them, or an error in between."""
    follows = closure(result.owner, dependence.needed_by)
    leads = closure(result.owner, dependence.needs)
    between: list[int] = []
    for number, operation in enumerate(dependence.operations):
        if number in result.owner or operation.view:
            continue
        # What neither leads to a part nor follows one is made where it is read: after.
        if number not in leads:
            result.owner[number] = AFTER_OWNER
        elif number not in follows:
            result.owner[number] = BEFORE_OWNER
        else:
            between.append(number)
    if not between:
        return []
    operations = [dependence.operations[number] for number in between]
    return [unclaimed(each, paths, operations)]


def _first_of_each_kind(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The same fault in every layer is one fault."""
    first: dict[tuple[object, ...], Diagnostic] = {}
    for item in found:
        span = item.primary.span if item.primary else None
        place = (span.start, span.end) if span else None
        first.setdefault((item.code, place, item.secondary), item)
    return list(first.values())
