"""Selectors to sets of operations, one iteration at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.resolve.model import (
    DifferenceSelector,
    OwnSelector,
    Part,
    PartSelector,
    PathSelector,
    RestSelector,
    Selector,
    UnionSelector,
)


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
    """Module paths of the model, and the operations at and below each."""

    paths: tuple[str, ...]
    known: frozenset[str]
    at: Mapping[str, frozenset[int]]
    below: Mapping[str, frozenset[int]]


def index_modules(paths: Sequence[str], dependence: Dependence) -> Modules:
    """Sort the operations of a graph by module. Views belong to no part: left out."""
    at: dict[str, set[int]] = {}
    below: dict[str, set[int]] = {}
    for number, operation in enumerate(dependence.operations):
        if operation.view:
            continue
        at.setdefault(operation.module, set()).add(number)
        for ancestor in _ancestors(operation.module):
            below.setdefault(ancestor, set()).add(number)
    known = tuple(dict.fromkeys((*paths, *below)))
    return Modules(
        known,
        frozenset(known),
        {path: frozenset(numbers) for path, numbers in at.items()},
        {path: frozenset(numbers) for path, numbers in below.items()},
    )


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
    """Where selectors are evaluated: all iterations' paths, and which one it is."""

    modules: Modules
    iterations: tuple[str, ...]
    index: int
    parts: Mapping[str, Part]
    rest: frozenset[int] = frozenset()

    @property
    def path(self) -> str:
        """Module path of this iteration."""
        return self.iterations[self.index]


def evaluate(selector: Selector, scope: Scope) -> frozenset[int]:
    """The operations a selector names in this iteration, `rest` as the scope has it."""
    match selector:
        case PathSelector():
            return frozenset().union(
                *(
                    scope.modules.below.get(path, frozenset())
                    for path in modules_of(selector, scope)
                )
            )
        case OwnSelector(operand):
            return frozenset().union(
                *(
                    scope.modules.at.get(path, frozenset())
                    for path in modules_of(operand, scope)
                )
            )
        case PartSelector(name):
            return evaluate(scope.parts[name].selector, scope)
        case UnionSelector(left, right):
            return evaluate(left, scope) | evaluate(right, scope)
        case DifferenceSelector(left, right):
            return evaluate(left, scope) - evaluate(right, scope)
        case RestSelector():
            return scope.rest


def modules_of(selector: PathSelector, scope: Scope) -> tuple[str, ...]:
    """Modules that a path selects in this iteration; none past the first or last."""
    match selector.anchor:
        case "root":
            base = ""
        case "scope":
            base = scope.path
        case "prev" | "next":
            neighbour = scope.index + (1 if selector.anchor == "next" else -1)
            if not 0 <= neighbour < len(scope.iterations):
                return ()
            base = scope.iterations[neighbour]
    return match_modules(scope.modules, base, selector.pattern)


def leaves(selector: Selector) -> list[PathSelector | OwnSelector]:
    """What names modules inside a selector, left to right."""
    match selector:
        case PathSelector() | OwnSelector():
            return [selector]
        case UnionSelector(left, right) | DifferenceSelector(left, right):
            return leaves(left) + leaves(right)
        case PartSelector() | RestSelector():
            return []


def contains_rest(selector: Selector) -> bool:
    """Whether `rest` appears in the selector."""
    match selector:
        case RestSelector():
            return True
        case UnionSelector(left, right) | DifferenceSelector(left, right):
            return contains_rest(left) or contains_rest(right)
        case _:
            return False
