"""Graphs of a part of a model: whether a schedule says anything of them.

After a graph break each graph has some of the model's modules, and a break inside a
layer leaves parts of the schedule without their operations. Modules alone are looked
at, before anything is traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from dynaflow_dsl.bind.selectors import Modules, Scope, match_each, modules_of
from dynaflow_dsl.resolve.model import (
    DifferenceSelector,
    FirstMatchSelector,
    OperationsSelector,
    OwnSelector,
    PartSelector,
    PathSelector,
    RestSelector,
    Schedule,
    ScheduleFile,
    Section,
    Selector,
    UnionSelector,
    WeightsSelector,
)
from dynaflow_dsl.resolve.selectors import operands


def says_nothing_of(
    file: ScheduleFile, running: Iterable[str], model: torch.nn.Module
) -> str | None:
    """Why a file has nothing to say of a graph, None where it may have.

    `running` are the modules in which something runs. Where a schedule speaks of
    modules that the model has not, it is at fault and not the graph: None.
    """
    if not any(_speaks_of(schedule, model) for schedule in file.schedules):
        return None
    here = _modules(_with_ancestors(running))
    reason = "it holds none of the modules that the schedule names"
    for schedule in file.schedules:
        for section in schedule.sections:
            scopes = list(_scopes(section, here))
            if scopes:
                reason = "it holds none of the parts of the schedule"
            if any(_may_hold(section, scope) for scope in scopes):
                return None
    return reason


def others_may_fit(
    file: ScheduleFile, running: Iterable[str], model: torch.nn.Module
) -> bool:
    """Whether another graph of the model may hold all parts, though this one does not.

    Layers of one class have one code, which breaks in one place: those of other classes
    are needed, in every section of a schedule.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    here, whole = _modules(_with_ancestors(running)), _modules(modules)
    for schedule in file.schedules:
        layered = [each for each in schedule.sections if each.each is not None]
        broken = {
            type(modules[path])
            for section in layered
            for path in _iterations(section, here)
            if path in modules
        }
        if _speaks_of(schedule, model) and all(
            any(type(modules[path]) not in broken for path in _iterations(each, whole))
            for each in layered
        ):
            return bool(layered)
    return False


def _speaks_of(schedule: Schedule, model: torch.nn.Module) -> bool:
    """Whether a model has every module that a schedule names by a path."""
    whole = _modules(dict(model.named_modules(remove_duplicate=False)))
    for section in schedule.sections:
        scopes = list(_scopes(section, whole))
        for part in section.parts:
            for path in _paths(part.selector):
                if not any(modules_of(path, scope) for scope in scopes):
                    return False
    return True


def _paths(selector: Selector) -> Iterator[PathSelector]:
    """The paths of a selector that have to match something."""
    match selector:
        case PathSelector():
            yield selector
        case FirstMatchSelector():
            # One side may be made for another model.
            return
        case _:
            for operand in operands(selector):
                yield from _paths(operand)


def _may_hold(section: Section, scope: Scope) -> bool:
    """Whether something may be in a part that is no mere rest, if there is such one."""
    named = [part for part in section.parts if not _is_rest(part.selector)]
    return not named or any(_may_match(part.selector, scope) for part in named)


def _is_rest(selector: Selector) -> bool:
    match selector:
        case RestSelector():
            return True
        case DifferenceSelector(left, _):
            return _is_rest(left)
    return False


def _may_match(selector: Selector, scope: Scope) -> bool:
    match selector:
        case PathSelector():
            return bool(modules_of(selector, scope))
        case OwnSelector(operand) | OperationsSelector(operand=operand):
            return _may_match(operand, scope)
        case DifferenceSelector(left, _):
            return _may_match(left, scope)
        case UnionSelector(left, right):
            return _may_match(left, scope) or _may_match(right, scope)
        case FirstMatchSelector():
            return any(_may_match(each, scope) for each in selector.choices)
        case PartSelector(name):
            return _may_match(scope.parts[name].selector, scope)
        case RestSelector() | WeightsSelector():
            return False


def _scopes(section: Section, modules: Modules) -> Iterator[Scope]:
    iterations = _iterations(section, modules)
    parts = {part.name: part for part in section.parts}
    for index in range(len(iterations)):
        yield Scope(modules, iterations, index, parts)


def _iterations(section: Section, modules: Modules) -> tuple[str, ...]:
    if section.each is None:
        return ("",)
    return match_each(section.each, modules, modules.known)


def _with_ancestors(paths: Iterable[str]) -> dict[str, None]:
    return {
        ".".join(path.split(".")[:depth]): None
        for path in sorted(paths)
        for depth in range(path.count(".") + 2)
    }


def _modules(paths: Iterable[str] | Mapping[str, object]) -> Modules:
    """Modules without operations, of which only the paths are known."""
    known = tuple(paths)
    return Modules(known, frozenset(known), {}, {}, {}, {}, {}, {}, ())
