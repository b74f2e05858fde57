"""Selectors, and what they say about each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import given_twice, not_yet, unknown_name
from dynaflow_dsl.syntax import model as syntax

REST = "rest"
OWN = "own"


def resolve_selector(
    selector: syntax.SelectorExpression,
    parts: Sequence[str] | None,
    found: list[Diagnostic],
) -> model.Selector | None:
    """A selector whose names all exist, or None after saying which do not.

    `parts` is None when not all parts are known: then any name may be one.
    """
    match selector:
        case syntax.Path():
            return resolve_path(selector)
        case syntax.PartReference(name, span):
            if name == REST:
                return model.RestSelector(span)
            if parts is not None and name not in parts:
                unknown = unknown_name("part", name, span, parts)
                module = f"a module has a dot before it: .{name}"
                found.append(replace(unknown, helps=(*unknown.helps, module)))
                return None
            return model.PartSelector(name, span)
        case syntax.OperationsIn(operation, scope, span):
            if not isinstance(operation, syntax.Name):
                found.append(not_yet("a pattern for names of operations", span))
                return None
            if operation.text != OWN:
                found.append(not_yet(f"'{operation.text} in'", span))
                return None
            if not isinstance(scope, syntax.Path):
                found.append(not_yet("'own in' anything but a path", span))
                return None
            return model.OwnSelector(resolve_path(scope), span)
        case syntax.SetOperation(operator, left, right, span):
            first = resolve_selector(left, parts, found)
            second = resolve_selector(right, parts, found)
            if first is None or second is None:
                return None
            if operator == "+":
                return model.UnionSelector(first, second, span)
            return model.DifferenceSelector(first, second, span)
        case syntax.FirstMatch(_, _, span):
            found.append(not_yet("'or' between selectors", span))
            return None


def resolve_path(path: syntax.Path) -> model.PathSelector:
    """A module path."""
    return model.PathSelector(path.anchor, path.pattern, path.span)


def check_selectors(parts: Sequence[model.Part]) -> Iterator[Diagnostic]:
    """Refuse a second `rest`, and parts that are defined through themselves."""
    rests = [rest for part in parts for rest in _rests(part.selector)]
    for rest in rests[1:]:
        yield given_twice("'rest'", rest.span, rests[0].span)
    if len(rests) > 1:
        return
    names = [part.name for part in parts]
    reads: dict[str, list[str]] = {}
    for part in parts:
        reads[part.name] = list(_references(part.selector))
        if next(_rests(part.selector), None):
            # `rest` is known only when every other part is.
            reads[part.name] += [name for name in names if name != part.name]
    cycle = _cycle(names, reads)
    if cycle:
        part = next(part for part in parts if part.name == cycle[0])
        chain = " -> ".join([*cycle, cycle[0]])
        yield Diagnostic(
            "DFS109",
            f"part '{part.name}' is defined through itself",
            Label(part.name_span, f"read in this order: {chain}"),
            notes=("'rest' is what all other parts leave, so it reads them all",)
            if rests
            else (),
        )


def _rests(selector: model.Selector) -> Iterator[model.RestSelector]:
    match selector:
        case model.RestSelector():
            yield selector
        case model.UnionSelector(left, right) | model.DifferenceSelector(left, right):
            yield from _rests(left)
            yield from _rests(right)


def _references(selector: model.Selector) -> Iterator[str]:
    match selector:
        case model.PartSelector(name):
            yield name
        case model.UnionSelector(left, right) | model.DifferenceSelector(left, right):
            yield from _references(left)
            yield from _references(right)


def _cycle(
    names: Sequence[str], reads: Mapping[str, Sequence[str]]
) -> list[str] | None:
    """The first cycle, beginning at the part that is declared first of those in it."""
    done: set[str] = set()
    for start in names:
        # Depth first without recursion: a stack of names and what is left to visit.
        path: list[str] = []
        stack: list[tuple[str, Iterator[str]]] = [(start, iter(reads[start]))]
        path.append(start)
        while stack:
            _, following = stack[-1]
            name = next(following, None)
            if name is None:
                done.add(path.pop())
                stack.pop()
            elif name in path:
                cycle = path[path.index(name) :]
                first = min(range(len(cycle)), key=lambda i: names.index(cycle[i]))
                return cycle[first:] + cycle[:first]
            elif name not in done:
                path.append(name)
                stack.append((name, iter(reads[name])))
    return None
