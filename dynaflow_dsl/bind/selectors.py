"""Selectors to sets of operations, one iteration at a time."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from dynaflow_dsl.bind.collectives import completions
from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.operations.names import matches_name, matches_operator
from dynaflow_dsl.resolve.model import (
    DifferenceSelector,
    Each,
    FirstMatchSelector,
    OperationsSelector,
    OwnSelector,
    Part,
    PartSelector,
    PathSelector,
    RestSelector,
    Selector,
    UnionSelector,
    WeightsSelector,
)
from dynaflow_dsl.resolve.selectors import operands, references

NOTHING: frozenset[int] = frozenset()


def matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a module path, split at dots, matches a pattern; `**` is any depth.

    Linear in the product of the lengths, whatever the number of `**`.
    """
    reachable = {0}
    for segment in path:
        following: set[int] = set()
        for place in _skip_any_depth(pattern, reachable):
            if place < len(pattern):
                if pattern[place] == "**":
                    following.add(place)
                elif fnmatchcase(segment, pattern[place]):
                    following.add(place + 1)
        reachable = following
    return len(pattern) in _skip_any_depth(pattern, reachable)


def _skip_any_depth(pattern: Sequence[str], places: set[int]) -> set[int]:
    out = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == "**":
            place += 1
            out.add(place)
    return out


@dataclass(frozen=True, slots=True)
class Modules:
    """Module paths of the model, and the operations at and below each.

    Beside them the operations by operator, and by the names of marks and functions that
    they ran under; and for a collective the operations that complete it. `views` belong
    to no part. `chosen` keeps answers, which are the same in every iteration.
    """

    paths: tuple[str, ...]
    known: frozenset[str]
    at: Mapping[str, frozenset[int]]
    below: Mapping[str, frozenset[int]]
    operators: Mapping[str, frozenset[int]]
    marks: Mapping[str, frozenset[int]]
    functions: Mapping[str, frozenset[int]]
    completions: Mapping[int, frozenset[int]]
    views: tuple[Operation, ...]
    chosen: dict[tuple[str, tuple[str, ...]], frozenset[int]] = field(
        default_factory=dict, compare=False
    )


def index_modules(paths: Sequence[str], dependence: Dependence) -> Modules:
    """Sort the operations of a graph by module. Views belong to no part: left out."""
    at: dict[str, set[int]] = {}
    below: dict[str, set[int]] = {}
    operators: dict[str, set[int]] = {}
    marks: dict[str, set[int]] = {}
    functions: dict[str, set[int]] = {}
    # Operations of all layers run in the same few stacks of functions.
    stacks: dict[tuple[str, ...], list[int]] = {}
    for number, operation in enumerate(dependence.operations):
        if operation.view:
            continue
        at.setdefault(operation.module, set()).add(number)
        for ancestor in _ancestors(operation.module):
            below.setdefault(ancestor, set()).add(number)
        operators.setdefault(operation.operator, set()).add(number)
        for mark in operation.marks:
            marks.setdefault(mark, set()).add(number)
        stacks.setdefault(operation.functions, []).append(number)
    for stack, numbers in stacks.items():
        for function in stack:
            functions.setdefault(function, set()).update(numbers)
    known = tuple(dict.fromkeys((*paths, *below)))
    return Modules(
        known,
        frozenset(known),
        _frozen(at),
        _frozen(below),
        _frozen(operators),
        _frozen(marks),
        _frozen(functions),
        completions(dependence),
        tuple(operation for operation in dependence.operations if operation.view),
    )


def _frozen(sets: Mapping[str, set[int]]) -> dict[str, frozenset[int]]:
    return {name: frozenset(numbers) for name, numbers in sets.items()}


@cache
def _ancestors(path: str) -> tuple[str, ...]:
    segments = path.split(".") if path else []
    return tuple(".".join(segments[:n]) for n in range(len(segments) + 1))


def match_modules(
    modules: Modules, scope: str, pattern: tuple[str, ...]
) -> tuple[str, ...]:
    """Paths of the modules that a pattern relative to `scope` matches."""
    base = scope.split(".") if scope else []
    if not any("*" in segment or "?" in segment for segment in pattern):
        path = ".".join((*base, *pattern))
        return (path,) if path in modules.known else ()
    return _matching(modules.paths, tuple(base), pattern)


def match_each(each: Each, modules: Modules, runs: Container[str]) -> tuple[str, ...]:
    """Paths of the modules that a section repeats over, of those that run."""
    found = match_modules(modules, "", each.path.pattern)
    if each.having is None:
        return tuple(path for path in found if path in runs)
    wanted = each.having.pattern
    return tuple(
        path
        for path in found
        if any(inner in runs for inner in match_modules(modules, path, wanted))
    )


@lru_cache(maxsize=1024)
def _matching(
    paths: tuple[str, ...], base: tuple[str, ...], pattern: tuple[str, ...]
) -> tuple[str, ...]:
    """The slow way; a pattern from the root is asked for again in every iteration."""
    prefix = len(base)
    found = []
    for path in paths:
        segments = tuple(path.split(".")) if path else ()
        if segments[:prefix] == base and matches(pattern, segments[prefix:]):
            found.append(path)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where selectors are evaluated: all iterations' paths, and which one it is.

    `parts_here` keeps what parts that others name hold, without `rest`.
    """

    modules: Modules
    iterations: tuple[str, ...]
    index: int
    parts: Mapping[str, Part]
    rest: frozenset[int] = frozenset()
    parts_here: dict[str, frozenset[int]] = field(default_factory=dict, compare=False)

    @property
    def path(self) -> str:
        """Module path of this iteration."""
        return self.iterations[self.index]


def evaluate(selector: Selector, scope: Scope) -> frozenset[int]:
    """The operations a selector names in this iteration, `rest` as the scope has it."""
    modules = scope.modules
    match selector:
        case PathSelector():
            return _union(modules.below, modules_of(selector, scope))
        case OwnSelector(operand):
            return _own(operand, scope)
        case OperationsSelector(operand=operand):
            return evaluate(operand, scope) & selected(selector, modules)
        case PartSelector(name):
            return _part(name, scope)
        case UnionSelector(left, right):
            return evaluate(left, scope) | evaluate(right, scope)
        case DifferenceSelector(left, right):
            return evaluate(left, scope) - evaluate(right, scope)
        case FirstMatchSelector():
            choice = chosen(selector, scope)
            return NOTHING if choice is None else evaluate(choice, scope)
        case RestSelector():
            return scope.rest
        case WeightsSelector():
            # Of these parts no selector speaks: they have no operations.
            return NOTHING


def _part(name: str, scope: Scope) -> frozenset[int]:
    """What a part holds; parts that it names come first, however long the chain is."""
    held, waiting = scope.parts_here, [name]
    while waiting:
        selector = scope.parts[waiting[-1]].selector
        unknown = [other for other in references(selector) if other not in held]
        if unknown:
            waiting += unknown
        else:
            held[waiting.pop()] = evaluate(selector, scope)
    return held[name]


def chosen(selector: FirstMatchSelector, scope: Scope) -> Selector | None:
    """The side of an `or` that counts in this iteration."""
    return next((each for each in selector.choices if evaluate(each, scope)), None)


def _own(operand: Selector, scope: Scope) -> frozenset[int]:
    """Of the operations of an operand those of the modules that its paths match."""
    match operand:
        case PathSelector():
            return _union(scope.modules.at, modules_of(operand, scope))
        case OwnSelector(inner):
            return _own(inner, scope)
        case OperationsSelector(operand=inner):
            return _own(inner, scope) & selected(operand, scope.modules)
        case PartSelector(name):
            return _own(scope.parts[name].selector, scope)
        case UnionSelector(left, right):
            return _own(left, scope) | _own(right, scope)
        case DifferenceSelector(left, right):
            return _own(left, scope) - evaluate(right, scope)
        case FirstMatchSelector():
            choice = chosen(operand, scope)
            return NOTHING if choice is None else _own(choice, scope)
        case RestSelector() | WeightsSelector():
            return NOTHING


def _union(sets: Mapping[str, frozenset[int]], names: Iterable[str]) -> frozenset[int]:
    return NOTHING.union(*(sets.get(name, NOTHING) for name in names))


def selected(selector: OperationsSelector, modules: Modules) -> frozenset[int]:
    """What `all_reduce`, `"*mm"`, `"mark:gate"` stand for in the whole model."""
    key = selector.by, selector.patterns
    if key not in modules.chosen:
        modules.chosen[key] = frozenset(_selected(selector, modules))
    return modules.chosen[key]


def _selected(selector: OperationsSelector, modules: Modules) -> Iterator[int]:
    match selector.by:
        case "kind":
            for number in _named(modules.operators, selector, matches_operator):
                yield number
                yield from modules.completions.get(number, ())
        case "operator":
            yield from _named(modules.operators, selector, matches_operator)
        case "mark":
            yield from _named(modules.marks, selector, matches_name)
        case "function":
            yield from _named(modules.functions, selector, matches_name)


def _named(
    sets: Mapping[str, frozenset[int]],
    selector: OperationsSelector,
    matches: Callable[[str, str], bool],
) -> Iterator[int]:
    for name, numbers in sets.items():
        if any(matches(pattern, name) for pattern in selector.patterns):
            yield from numbers


def claims(selector: Selector, scope: Scope) -> dict[int, Selector]:
    """Each operation that a selector names in this iteration, with the term that does.

    Terms are what `+`, `-` and `or` stand between; the first counts.
    """
    match selector:
        case UnionSelector(left, right):
            return {**claims(right, scope), **claims(left, scope)}
        case DifferenceSelector(left, right):
            taken = evaluate(right, scope)
            mine = claims(left, scope)
            return {n: term for n, term in mine.items() if n not in taken}
        case FirstMatchSelector():
            choice = chosen(selector, scope)
            return {} if choice is None else claims(choice, scope)
    return dict.fromkeys(evaluate(selector, scope), selector)


def modules_of(selector: PathSelector, scope: Scope) -> tuple[str, ...]:
    """Modules that a path selects in this iteration; none past the first or last."""
    base = base_of(selector, scope)
    if base is None:
        return ()
    return match_modules(scope.modules, base, selector.pattern)


def base_of(selector: PathSelector, scope: Scope) -> str | None:
    """The module that a path begins at; None past the first or last iteration."""
    match selector.anchor:
        case "root":
            return ""
        case "scope":
            return scope.path
        case "prev" | "next":
            neighbour = scope.index + (1 if selector.anchor == "next" else -1)
            if not 0 <= neighbour < len(scope.iterations):
                return None
            return scope.iterations[neighbour]


def contains_rest(selector: Selector) -> bool:
    """Whether `rest` appears in the selector."""
    if isinstance(selector, RestSelector):
        return True
    return any(contains_rest(operand) for operand in operands(selector))
