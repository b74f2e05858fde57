"""Selectors that name no operation, and what is near to what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from dynaflow_dsl.bind.faults import SHOWN, joined, nearest, nothing_runs
from dynaflow_dsl.bind.selectors import (
    Modules,
    Scope,
    base_of,
    chosen,
    contains_rest,
    evaluate,
    match_modules,
    modules_of,
    selected,
)
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.operations.names import (
    matches_name,
    matches_operator,
    without_overload,
)
from dynaflow_dsl.resolve.model import (
    Each,
    FirstMatchSelector,
    OperationsSelector,
    OwnSelector,
    Part,
    PartSelector,
    PathSelector,
    Selector,
)
from dynaflow_dsl.resolve.selectors import operands


def without_operations(
    parts: Sequence[Part], scopes: Sequence[Scope]
) -> Iterator[Diagnostic]:
    """Every selector in a part that names nothing, or not all that it promises."""
    for part in parts:
        yield from _without(part.selector, scopes)


def _without(selector: Selector, scopes: Sequence[Scope]) -> Iterator[Diagnostic]:
    if isinstance(selector, FirstMatchSelector):
        # One side may be made for another model, or for other iterations.
        yield from _no_side(selector, scopes)
        return
    inner = [found for item in operands(selector) for found in _without(item, scopes)]
    yield from inner
    if inner or contains_rest(selector):
        return
    if any(evaluate(selector, scope) for scope in scopes):
        return
    match selector:
        case PathSelector():
            yield empty_path(selector, scopes)
        case OwnSelector(operand, span):
            text = _text(operand)
            yield Diagnostic(
                "DFS201",
                f"{text} has no operations of its own in the traced model",
                Label(span, "all its operations belong to modules below it"),
                helps=(f"write {text} for the module and all below",),
            )
        case OperationsSelector():
            yield _empty_operations(selector, scopes)


def empty_path(path: PathSelector, scopes: Sequence[Scope]) -> Diagnostic:
    """A path that names no operation in any iteration."""
    text = _text(path)
    if any(modules_of(path, scope) for scope in scopes):
        return nothing_runs(text, path)
    if all(base_of(path, scope) is None for scope in scopes):
        return Diagnostic(
            "DFS201",
            f"{text} matches nothing: there is one iteration alone",
            Label(path.span, f"no iteration is {path.anchor}"),
            helps=("leave it out, or compile for a model with more layers",),
        )
    base = "" if path.anchor == "root" else scopes[0].path
    where = f" below {base}" if base else ""
    return Diagnostic(
        "DFS201",
        f"{text} matches no module{where}",
        Label(path.span, "matches nothing"),
        helps=_near_paths(path, base, scopes[0].modules),
    )


def _near_paths(path: PathSelector, base: str, modules: Modules) -> tuple[str, ...]:
    prefix = f"{base}." if base else ""
    below = [name[len(prefix) :] for name in modules.paths if name.startswith(prefix)]
    anchor = "" if path.anchor == "scope" else path.anchor
    if base and below and all(name[0].isdigit() for name in below):
        # The modules of a list have numbers for names.
        return (f"{base} is a list: 'each' goes over its modules as .{base}.*",)
    if not anchor and (inside := _from_the_scope(path.pattern, base, modules)):
        return (f"paths begin at {base} here: write {inside}",)
    return nearest(".".join(path.pattern), below, f"{anchor}.")


def _from_the_scope(pattern: tuple[str, ...], base: str, modules: Modules) -> str:
    """A path that was written from the model, as it is written in a scope."""
    whole = base.split(".") if base else []
    rest = pattern[len(whole) :]
    if not rest or not all(map(fnmatchcase, whole, pattern)):
        return ""
    return f".{'.'.join(rest)}" if match_modules(modules, base, rest) else ""


# ---- kinds, operators, marks and functions -------------------------------------------


def _empty_operations(
    selector: OperationsSelector, scopes: Sequence[Scope]
) -> Diagnostic:
    modules = scopes[0].modules
    where = _text(selector.operand)
    notes: tuple[str, ...] = ()
    if elsewhere := _modules_with(selected(selector, modules), scopes):
        notes = (f"it matches in {elsewhere}",)
    elif any(_matches(selector, view) for view in modules.views):
        notes = ("it matches views only, which are made anew in each part",)
    return Diagnostic(
        "DFS201",
        f"{_said(selector)} in {where}",
        Label(selector.span, "matches nothing"),
        notes=notes,
        helps=_near_names(selector, scopes, known=bool(notes)),
    )


def _said(selector: OperationsSelector) -> str:
    """What was looked for and is not there."""
    match selector.by:
        case "kind":
            return f"there is no {selector.name}"
        case "operator":
            return f"no operator matches {selector.name}"
        case "mark":
            return f"no operation has the mark {selector.name}"
        case "function":
            return f"no operation ran in the function {selector.name}"


def _near_names(
    selector: OperationsSelector, scopes: Sequence[Scope], *, known: bool
) -> tuple[str, ...]:
    """Names like the one that was looked for, else those that are there.

    `known` says that it exists as it is, though not there.
    """
    modules = scopes[0].modules
    among = frozenset[int]().union(
        *(evaluate(selector.operand, scope) for scope in scopes)
    )
    sets: Mapping[str, frozenset[int]]
    match selector.by:
        case "mark":
            sets, prefix = modules.marks, "mark:"
        case "function":
            sets, prefix = modules.functions, "function:"
        case _:
            sets, prefix = modules.operators, ""
    count: Counter[str] = Counter()
    for name, numbers in sets.items():
        shown = name if prefix else without_overload(name)
        count[shown] += len(numbers & among)
    there = [name for name, times in count.most_common() if times]
    if selector.by != "kind" and not known:
        near = _alike(selector.name, there) or _alike(selector.name, list(count))
        if near:
            quoted = [f'"{prefix}{name}"' for name in near]
            return (f"did you mean {joined(quoted)}?",)
    if selector.by == "mark" and not sets:
        return (
            f"write 'with dynaflow_dsl.mark(\"{selector.name}\"):' in the code of the "
            "model, and trace it again",
        )
    if not there:
        return ()
    what = "operators" if not prefix else f"{selector.by}s"
    listed = ", ".join(there[:SHOWN])
    more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
    return (f"{what} there: {listed}{more}",)


def _alike(wanted: str, names: Sequence[str]) -> list[str]:
    """Names that end alike: `namespace` and `package.module` say little."""
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(name.rpartition(".")[2], []).append(name)
    near = get_close_matches(wanted.rpartition(".")[2], ends, n=SHOWN, cutoff=0.7)
    return [name for end in near for name in ends[end]][:SHOWN]


def _matches(selector: OperationsSelector, operation: Operation) -> bool:
    match selector.by:
        case "mark":
            names = operation.marks
        case "function":
            names = operation.functions
        case _:
            return any(
                matches_operator(pattern, operation.operator)
                for pattern in selector.patterns
            )
    return any(matches_name(p, name) for p in selector.patterns for name in names)


def _modules_with(numbers: Iterable[int], scopes: Sequence[Scope]) -> str:
    """Where operations are, in words of the first iteration that has some of them."""
    wanted = frozenset(numbers)
    modules = scopes[0].modules
    for scope in scopes:
        prefix = f"{scope.path}." if scope.path else ""
        here = [
            f".{path[len(prefix) :]}" if path != scope.path else "(own in .)"
            for path, held in modules.at.items()
            if (path == scope.path or path.startswith(prefix)) and held & wanted
        ]
        if here:
            return joined(here[:SHOWN])
    outside = [f"root.{path}" for path, held in modules.at.items() if held & wanted]
    return joined(outside[:SHOWN]) if outside else ""


# ---- or ------------------------------------------------------------------------------


def _no_side(
    selector: FirstMatchSelector, scopes: Sequence[Scope]
) -> Iterator[Diagnostic]:
    """In each iteration one side has to be there, unless all look past the end."""
    if any(contains_rest(choice) for choice in selector.choices):
        return
    missing = [
        scope
        for scope in scopes
        if chosen(selector, scope) is None
        and any(_reaches(choice, scope) for choice in selector.choices)
    ]
    if not missing:
        return
    first = missing[0]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    yield Diagnostic(
        "DFS201",
        f"no side of this 'or' names an operation in {first.path}{more}",
        Label(selector.span, "matches nothing there"),
        notes=tuple(
            f"{_text(choice)}: {_reason(choice, first)}" for choice in selector.choices
        ),
        helps=_near_side(selector, first),
    )


def _reaches(selector: Selector, scope: Scope) -> bool:
    """Whether any path of a selector begins at a module that exists."""
    match selector:
        case PathSelector():
            return base_of(selector, scope) is not None
        case PartSelector(name):
            return _reaches(scope.parts[name].selector, scope)
    return any(_reaches(operand, scope) for operand in operands(selector))


def _reason(selector: Selector, scope: Scope) -> str:
    """Why one side names nothing in an iteration."""
    match selector:
        case PathSelector(anchor):
            base = base_of(selector, scope)
            if base is None:
                return f"{scope.path} is the {'last' if anchor == 'next' else 'first'}"
            if match_modules(scope.modules, base, selector.pattern):
                return "nothing runs in it"
            return f"matches no module{f' below {base}' if base else ''}"
        case OperationsSelector(operand=operand) if evaluate(operand, scope):
            return f"{_said(selector)} there"
    return "names no operation there"


def _near_side(selector: FirstMatchSelector, scope: Scope) -> tuple[str, ...]:
    """Help about the first side that is a path without a module."""
    for choice in selector.choices:
        if isinstance(choice, PathSelector) and not modules_of(choice, scope):
            base = base_of(choice, scope)
            if base is not None:
                return _near_paths(choice, base, scope.modules)
    return ()


# ---- iterations ----------------------------------------------------------------------


def no_iteration_having(
    each: Each, having: PathSelector, matched: Sequence[str], modules: Modules
) -> Diagnostic:
    """The `each` matches modules, but `having` none below any of them."""
    text, wanted = _text(each.path), _text(having)
    found = [
        p for path in matched for p in match_modules(modules, path, having.pattern)
    ]
    if found:
        return Diagnostic(
            "DFS201",
            f"no module that {text} matches has operations in {wanted}",
            Label(having.span, "the module exists, but nothing runs in it"),
        )
    below = dict.fromkeys(
        name[len(path) + 1 :]
        for path in matched
        for name in modules.paths
        if name.startswith(f"{path}.")
    )
    return Diagnostic(
        "DFS201",
        f"no module that {text} matches has {wanted}",
        Label(having.span, "leaves no iteration"),
        helps=nearest(".".join(having.pattern), list(below), "."),
    )


def partly_matched(part: Part, scopes: Sequence[Scope]) -> tuple[str, ...]:
    """Which selectors of a part name something in some iterations only, and where."""
    return tuple(_partly(part.selector, scopes))


def _partly(selector: Selector, scopes: Sequence[Scope]) -> Iterator[str]:
    if not isinstance(selector, PathSelector | OwnSelector | OperationsSelector):
        for operand in operands(selector):
            yield from _partly(operand, scopes)
        return
    if contains_rest(selector):
        return
    where = [scope.path for scope in scopes if evaluate(selector, scope)]
    if len(where) < len(scopes):
        more = f" and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
        listed = ", ".join(where[:SHOWN])
        yield f"{_text(selector)} matches in {listed}{more} only"


def _text(selector: Selector) -> str:
    """A selector as it is written."""
    return selector.span.phrase
