"""Parts that bring weights from host memory: which ones, and who else reads them.

Such a part has no operations. Its instance in an iteration has the parameters that it
brings there, which the other parts of this iteration read where they were brought to.
So nothing else may read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from dynaflow_dsl.bind.faults import (
    brought_elsewhere,
    brought_twice,
    brought_written,
    no_weights,
    no_weights_in_iteration,
)
from dynaflow_dsl.bind.model import (
    AFTER,
    BEFORE,
    Binding,
    Body,
    BoundPart,
    BoundSection,
    Instance,
)
from dynaflow_dsl.bind.ownership import Paths
from dynaflow_dsl.bind.selectors import Modules, Scope, modules_of
from dynaflow_dsl.bind.unmatched import empty_path
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import (
    DifferenceSelector,
    FirstMatchSelector,
    Part,
    PathSelector,
    Section,
    Selector,
    UnionSelector,
    WeightsSelector,
)
from dynaflow_dsl.resolve.sequential import NAME as SEQUENTIAL


class Bringer(NamedTuple):
    """Who brings a parameter: a part of a section, in an iteration."""

    section: int
    part: str
    iteration: int


Brought: TypeAlias = Mapping[str, Bringer]


def without_fetches(section: Section) -> Section:
    """The section with the parts that have operations."""
    parts = tuple(part for part in section.parts if not part.fetches)
    return (
        section if len(parts) == len(section.parts) else replace(section, parts=parts)
    )


def bind_fetches(
    sections: Sequence[Section], paths: Paths, modules: Modules, graph: Graph
) -> tuple[list[list[BoundPart]], Brought, list[Diagnostic]]:
    """The parts of each section that bring weights, what they bring, what is wrong."""
    names = [item.name for item in graph.inputs if item.kind == "parameter"]
    bound: list[list[BoundPart]] = []
    brought: dict[str, Bringer] = {}
    found: list[Diagnostic] = []
    for number, (section, mine) in enumerate(zip(sections, paths, strict=True)):
        bound.append([])
        declared = {part.name: part for part in section.parts}
        scopes = [Scope(modules, mine, index, declared) for index in range(len(mine))]
        for part in section.parts:
            if not part.fetches:
                continue
            listed = [_weights(part.selector, scope, names) for scope in scopes]
            faults = list(_without_weights(part.selector, scopes, names))
            faults = faults or list(_lacking(part, mine, listed))
            for iteration, chosen in enumerate(listed):
                for name in chosen:
                    here = Bringer(number, part.name, iteration)
                    first = brought.setdefault(name, here)
                    if first != here and not faults:
                        faults.append(brought_twice(part, name, first.part))
            found += faults
            if not faults:
                bound[-1].append(_bound(part, mine, listed, graph))
    return bound, brought, found


def _weights(selector: Selector, scope: Scope, names: Sequence[str]) -> tuple[str, ...]:
    """What a part brings in one iteration, in the order of the graph."""
    assert isinstance(selector, WeightsSelector)
    chosen = _named(selector.operand, scope, names)
    return tuple(name for name in names if name in chosen)


def _named(selector: Selector, scope: Scope, names: Sequence[str]) -> frozenset[str]:
    match selector:
        case PathSelector():
            modules = modules_of(selector, scope)
            return frozenset(
                name
                for name in names
                if any(not path or name.startswith(f"{path}.") for path in modules)
            )
        case UnionSelector(left, right):
            return _named(left, scope, names) | _named(right, scope, names)
        case DifferenceSelector(left, right):
            return _named(left, scope, names) - _named(right, scope, names)
        case FirstMatchSelector(choices):
            found = (_named(choice, scope, names) for choice in choices)
            return next(filter(None, found), frozenset())
    raise AssertionError(selector)


def _without_weights(
    selector: Selector, scopes: Sequence[Scope], names: Sequence[str]
) -> Iterator[Diagnostic]:
    """Paths that name nothing in any iteration; a side of an `or` may."""
    match selector:
        case WeightsSelector(operand):
            yield from _without_weights(operand, scopes, names)
        case UnionSelector(left, right) | DifferenceSelector(left, right):
            for side in (left, right):
                yield from _without_weights(side, scopes, names)
        case PathSelector():
            if not any(_named(selector, scope, names) for scope in scopes):
                exists = any(modules_of(selector, scope) for scope in scopes)
                yield no_weights(selector) if exists else empty_path(selector, scopes)


def _lacking(
    part: Part, paths: Sequence[str], listed: Sequence[tuple[str, ...]]
) -> Iterator[Diagnostic]:
    """Every iteration has weights to bring."""
    lacking = [path for path, chosen in zip(paths, listed, strict=True) if not chosen]
    if len(lacking) == len(paths):
        yield no_weights(part.selector)
    elif lacking:
        yield no_weights_in_iteration(part, lacking[0])


def _bound(
    part: Part, paths: Sequence[str], listed: Sequence[tuple[str, ...]], graph: Graph
) -> BoundPart:
    """Iterations whose weights have the same names and types are of one kind."""
    types = {item.name: item.value.type for item in graph.inputs}
    kinds: dict[object, int] = {}
    bodies: list[Body] = []
    instances = []
    for iteration, (path, chosen) in enumerate(zip(paths, listed, strict=True)):
        key = tuple((name.removeprefix(f"{path}."), types[name]) for name in chosen)
        if key not in kinds:
            kinds[key] = len(bodies)
            bodies.append(Body((), (), chosen, (), example=iteration))
        instances.append(Instance(kinds[key], (), (), chosen, (), ()))
    return BoundPart(
        part.name, tuple(bodies), tuple(instances), (), frozenset(), fetches=True
    )


def unshared(
    binding: Binding, brought: Brought, written: Collection[str]
) -> list[Diagnostic]:
    """What is brought is read in its own iteration alone, and not `written`."""
    declared = {part.name: part for part in binding.schedule.parts}
    found: dict[tuple[str, str], Diagnostic] = {}
    for section, part, iteration, name in _reads(binding):
        bringer = brought.get(name)
        if bringer is None:
            continue
        fetch = declared[bringer.part]
        key = (bringer.part, part)
        at_home = section == bringer.section and iteration == bringer.iteration
        if name in written:
            found.setdefault(key, brought_written(fetch, name))
        elif not at_home:
            bound = binding.sections[bringer.section]
            path = bound.iterations[bringer.iteration].path
            reader = _reader(binding, section, part, iteration)
            found.setdefault(key, brought_elsewhere(fetch, name, path, reader))
    return list(found.values())


def _reads(binding: Binding) -> Iterator[tuple[int | None, str, int, str]]:
    """Section, part and iteration of everything that reads a parameter."""
    for number, section in enumerate(binding.sections):
        for part in section.parts:
            if not part.fetches:
                for i, instance in enumerate(part.instances):
                    yield from ((number, part.name, i, n) for n in instance.parameters)
    parts = {part.name for part in binding.parts}
    for part in binding.everything:
        if part.name not in parts:
            for i, instance in enumerate(part.instances):
                yield from ((None, part.name, i, n) for n in instance.parameters)


def _reader(binding: Binding, section: int | None, part: str, iteration: int) -> str:
    if section is not None:
        path = binding.sections[section].iterations[iteration].path
        return f"part {part} in {path}" if path else f"part {part}"
    where = {BEFORE: "before the parts", AFTER: "after the parts"}
    return f"what runs {where.get(part, 'between the iterations')}"


def with_fetches(
    sections: Sequence[BoundSection],
    whole: Sequence[Section],
    fetches: Sequence[Sequence[BoundPart]],
    brought: Brought,
) -> tuple[BoundSection, ...]:
    """Sections as the schedule has them: what brings weights runs first, and the other
    parts know who brings theirs."""
    if not brought:
        return tuple(sections)
    found = []
    for bound, section, mine in zip(sections, whole, fetches, strict=True):
        parts = [
            replace(
                part,
                instances=tuple(_supplied(each, brought) for each in part.instances),
            )
            for part in bound.parts
        ]
        found.append(BoundSection(section, bound.iterations, (*mine, *parts)))
    return tuple(found)


def _supplied(instance: Instance, brought: Brought) -> Instance:
    makers = (brought[name].part for name in instance.parameters if name in brought)
    return replace(instance, brought_by=tuple(dict.fromkeys(makers)))


def kept_resident(bindings: Sequence[Binding]) -> Iterator[Diagnostic]:
    """Weights that one executor of a module brings and another one reads in place."""
    for binding in bindings:
        declared = {part.name: part for part in binding.schedule.parts}
        brought = _brought_by(binding)
        if not brought:
            continue
        for other in bindings:
            if other is binding:
                continue
            theirs = _brought_by(other)
            for _, _, _, name in _reads(other):
                if name in brought and name not in theirs:
                    part = declared[brought[name]]
                    path = name.rpartition(".")[0]
                    reader = (
                        f"{_named_schedule(other)} for the entry {other.graph.entry}"
                    )
                    yield brought_elsewhere(part, name, path, reader, whole=True)
                    break


def _named_schedule(binding: Binding) -> str:
    name = binding.schedule.name
    return name if name == SEQUENTIAL else f"schedule {name}"


def _brought_by(binding: Binding) -> dict[str, str]:
    return {
        name: part.name
        for part in binding.parts
        if part.fetches
        for instance in part.instances
        for name in instance.parameters
    }
