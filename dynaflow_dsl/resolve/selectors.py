"""Selectors, and what they say about each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeGuard, assert_never

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.operations.aliases import aliases
from dynaflow_dsl.operations.plugins import PluginError
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import (
    given_twice,
    suggestions,
    unknown_name,
)
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

REST = "rest"
OWN = "own"
WEIGHTS = "weights"

_NAMES = re.compile(r"[\w.*?/-]+")
_EXAMPLES = {"mark": '"mark:gate"', "function": '"function:package.module.name"'}


def resolve_selector(
    selector: syntax.SelectorExpression,
    parts: Sequence[str] | None,
    found: list[Diagnostic],
) -> model.Selector | None:
    """A part's selector whose names all exist, or None after saying which do not.

    `parts` is None when not all parts are known: then any name may be one.
    """
    if names_weights(selector):
        return _weights_in(selector, parts, found)
    return _resolve(selector, parts, found)


def names_weights(
    selector: syntax.SelectorExpression,
) -> TypeGuard[syntax.OperationsIn]:
    """Whether a selector is `weights in` something."""
    return (
        isinstance(selector, syntax.OperationsIn)
        and isinstance(selector.operation, syntax.Name)
        and selector.operation.text == WEIGHTS
    )


def _resolve(
    selector: syntax.SelectorExpression,
    parts: Sequence[str] | None,
    found: list[Diagnostic],
) -> model.Selector | None:
    """A selector of operations, or a term of one."""
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
        case syntax.OperationsIn():
            return _operations_in(selector, parts, found)
        case syntax.SetOperation(operator, left, right, span):
            first = _resolve(left, parts, found)
            second = _resolve(right, parts, found)
            if first is None or second is None:
                return None
            if operator == "+":
                return model.UnionSelector(first, second, span)
            return model.DifferenceSelector(first, second, span)
        case syntax.FirstMatch(left, right, span):
            first = _resolve(left, parts, found)
            second = _resolve(right, parts, found)
            if first is None or second is None:
                return None
            choices = tuple(
                choice
                for side in (first, second)
                for choice in (
                    side.choices
                    if isinstance(side, model.FirstMatchSelector)
                    else (side,)
                )
            )
            return model.FirstMatchSelector(choices, span)


def _weights_in(
    selector: syntax.OperationsIn,
    parts: Sequence[str] | None,
    found: list[Diagnostic],
) -> model.Selector | None:
    """`weights in` what names modules of the iteration itself."""
    operand = _resolve(selector.scope, parts, found)
    if operand is None:
        return None
    for term in _terms(operand):
        if not isinstance(term, model.PathSelector):
            found.append(_weights_in_operations(term))
            return None
        if term.anchor != "scope":
            found.append(_weights_elsewhere(term))
            return None
    return model.WeightsSelector(operand, selector.span)


def _terms(selector: model.Selector) -> Iterator[model.Selector]:
    """What `+`, `-` and `or` stand between."""
    match selector:
        case model.UnionSelector() | model.DifferenceSelector():
            yield from (*_terms(selector.left), *_terms(selector.right))
        case model.FirstMatchSelector(choices):
            for choice in choices:
                yield from _terms(choice)
        case _:
            yield selector


def _operations_in(
    selector: syntax.OperationsIn,
    parts: Sequence[str] | None,
    found: list[Diagnostic],
) -> model.Selector | None:
    word, span = selector.operation, selector.span
    if names_weights(selector):
        found.append(misplaced_weights("stands in a larger selector", span))
        return None
    operand = _resolve(selector.scope, parts, found)
    match word:
        case syntax.Name(text="own"):
            if operand is None:
                return None
            if any(_rests(operand)):
                found.append(_own_in_rest(selector.scope.span))
                return None
            return model.OwnSelector(operand, span)
        case syntax.Name(name):
            operators = _spellings(word, found)
            if operators is None or operand is None:
                return None
            return model.OperationsSelector("kind", name, operators, operand, span)
        case syntax.String(text):
            pattern = _pattern(text, word.span, found)
            if pattern is None or operand is None:
                return None
            by, name = pattern
            return model.OperationsSelector(by, name, (name,), operand, span)


def _spellings(name: syntax.Name, found: list[Diagnostic]) -> tuple[str, ...] | None:
    """Patterns for the operators of a kind."""
    try:
        known = aliases()
    except PluginError as error:
        found.append(_broken_plugin(error, name.span))
        return None
    if name.text not in known:
        choices = (*known, OWN, WEIGHTS)
        found.append(unknown_name("kind of operation", name.text, name.span, choices))
        return None
    return known[name.text]


def _pattern(
    text: str, span: Span, found: list[Diagnostic]
) -> tuple[Literal["operator", "mark", "function"], str] | None:
    """What a text selects by, and its pattern."""
    prefix, colon, name = text.partition(":")
    if colon and name.startswith(":"):
        found.append(
            Diagnostic(
                "DFS108",
                "names of operators are written with dots",
                Label(span, "has '::'"),
                helps=(f'write "{text.replace("::", ".")}"',),
            )
        )
        return None
    if colon and prefix not in _EXAMPLES:
        found.append(
            Diagnostic(
                "DFS102",
                f"operations are not selected by '{prefix}:'",
                Label(span, "unknown"),
                helps=suggestions(f"{prefix}:", [f"{each}:" for each in _EXAMPLES]),
            )
        )
        return None
    pattern = name if colon else prefix
    if pattern and not _NAMES.fullmatch(pattern):
        found.append(
            Diagnostic(
                "DFS108",
                "this must be a name or a pattern for names",
                Label(span, "no name has all of these characters"),
                helps=("use letters, digits and _ . / -, with * and ? for others",),
            )
        )
        return None
    if not pattern.strip("*"):
        example = _EXAMPLES[prefix] if colon else '"*dispatch*" or "aten.mm"'
        what = "names no operator" if not colon else f"names no {prefix}"
        found.append(
            Diagnostic(
                "DFS108",
                "this must be a name or a pattern for names",
                Label(span, what),
                helps=(f"write {example}",),
            )
        )
        return None
    if colon:
        return ("mark" if prefix == "mark" else "function"), pattern
    return "operator", pattern


def resolve_path(path: syntax.Path) -> model.PathSelector:
    """A module path."""
    return model.PathSelector(path.anchor, path.pattern, path.span)


def resolve_having(
    path: syntax.Path, found: list[Diagnostic]
) -> model.PathSelector | None:
    """The path after `having`, which every iteration is asked about by itself."""
    if path.anchor == "scope" and path.pattern:
        return resolve_path(path)
    if path.anchor == "scope":
        label = "every module has itself"
    elif path.anchor == "root":
        label = "the same for every iteration"
    else:
        label = "which iterations there are is decided here"
    found.append(
        Diagnostic(
            "DFS114",
            f"'{path.span.text}' tells no iterations apart",
            Label(path.span, label),
            helps=("name a module below the iteration, for example .mlp.experts",),
        )
    )
    return None


def operands(selector: model.Selector) -> tuple[model.Selector, ...]:
    """The selectors that a selector is made of, left to right."""
    match selector:
        case model.UnionSelector(left, right) | model.DifferenceSelector(left, right):
            return left, right
        case model.FirstMatchSelector(choices):
            return choices
        case (
            model.OwnSelector(operand)
            | model.WeightsSelector(operand)
            | model.OperationsSelector(operand=operand)
        ):
            return (operand,)
        case model.PathSelector() | model.PartSelector() | model.RestSelector():
            return ()
        case _:
            assert_never(selector)


def check_selectors(parts: Sequence[model.Part]) -> Iterator[Diagnostic]:
    """Refuse a second `rest`, parts that are defined through themselves, and operations
    of a part that has none."""
    rests = [rest for part in parts for rest in _rests(part.selector)]
    for rest in rests[1:]:
        yield given_twice("'rest'", rest.span, rests[0].span)
    if len(rests) > 1:
        return
    fetching = {part.name for part in parts if part.fetches}
    for part in parts:
        yield from _of_fetches(part.selector, fetching)
    names = [part.name for part in parts]
    reads: dict[str, list[str]] = {}
    for part in parts:
        reads[part.name] = list(references(part.selector))
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
    if isinstance(selector, model.RestSelector):
        yield selector
    for operand in operands(selector):
        yield from _rests(operand)


def references(selector: model.Selector) -> Iterator[str]:
    """Names of the parts that stand in a selector."""
    if isinstance(selector, model.PartSelector):
        yield selector.name
    for operand in operands(selector):
        yield from references(operand)


def misplaced_weights(
    label: str, span: Span, secondary: tuple[Label, ...] = ()
) -> Diagnostic:
    """For `weights in` where it says nothing that could be done."""
    return Diagnostic(
        "DFS123",
        "'weights in' is a part of its own, in an 'each'",
        Label(span, label),
        secondary,
        helps=("write 'part fetch on copy = weights in .' inside the 'each'",),
    )


def _weights_in_operations(term: model.Selector) -> Diagnostic:
    return Diagnostic(
        "DFS108",
        "'weights in' takes what names modules",
        Label(term.span, "names operations"),
        helps=("write paths, for example 'weights in .' or 'weights in (.mlp + .a)'",),
    )


def _weights_elsewhere(path: model.PathSelector) -> Diagnostic:
    return Diagnostic(
        "DFS114",
        f"'{path.span.text}' means nothing here",
        Label(path.span, "a part fetches the weights of its own iteration"),
        helps=("start the path with a dot",),
    )


def _of_fetches(
    selector: model.Selector, fetching: Collection[str]
) -> Iterator[Diagnostic]:
    if isinstance(selector, model.PartSelector) and selector.name in fetching:
        yield Diagnostic(
            "DFS123",
            f"part '{selector.name}' has no operations: it brings weights",
            Label(selector.span, "names operations that there are not"),
            helps=("name the module instead, or leave this term out",),
        )
    for operand in operands(selector):
        yield from _of_fetches(operand, fetching)


def _own_in_rest(span: Span) -> Diagnostic:
    return Diagnostic(
        "DFS108",
        "'own in' takes what names modules",
        Label(span, "'rest' names none"),
        helps=("write 'own in .' for the module of the iteration",),
    )


def _broken_plugin(error: PluginError, span: Span) -> Diagnostic:
    return Diagnostic(
        "DFS117",
        f"plug-in '{error.name}' cannot be imported",
        Label(span, "plug-ins may add to the kinds of operations"),
        notes=(f"{error.place}: {error}",),
        helps=("repair the package that brings it, or uninstall it",),
    )


def _cycle(names: Sequence[str], reads: Mapping[str, Sequence[str]]) -> list[str]:
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
    return []
