"""What can be wrong between a schedule and a graph, said in the schedule's words."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from dynaflow_dsl.bind.selectors import Modules, Scope
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import Each, Part, PathSelector, Split

SHOWN = 5


def no_iterations(each: Each, modules: Modules) -> Diagnostic:
    """The `each` matches no module that holds operations."""
    wanted = ".".join(each.path.pattern)
    return Diagnostic(
        "DFS201",
        f"no module of the model matches .{wanted}",
        Label(each.path.span, "matches nothing"),
        helps=_nearest(wanted, modules.paths, "."),
    )


def empty_selector(
    leaf: PathSelector, scopes: Sequence[Scope], modules: Modules, *, matched: bool
) -> Diagnostic:
    """A path in a part selects nothing in any iteration."""
    wanted = ".".join(leaf.pattern)
    text = leaf.span.text
    if matched:
        return Diagnostic(
            "DFS201",
            f"{text} has no operations of its own in the traced model",
            Label(leaf.span, "the module exists, but nothing runs in it"),
            helps=("remove it: a part is a set of operations",),
        )
    base = "" if leaf.anchor == "root" else scopes[0].path
    prefix = f"{base}." if base else ""
    below = [path[len(prefix) :] for path in modules.paths if path.startswith(prefix)]
    anchor = "" if leaf.anchor == "scope" else leaf.anchor
    where = f" below {base}" if base else ""
    return Diagnostic(
        "DFS201",
        f"{text} matches no module{where}",
        Label(leaf.span, "matches nothing"),
        helps=_nearest(wanted, below, f"{anchor}."),
    )


def _nearest(wanted: str, paths: Sequence[str], prefix: str) -> tuple[str, ...]:
    candidates = [path for path in paths if path]
    near = get_close_matches(wanted, candidates, n=SHOWN, cutoff=0.5)
    if near:
        return (f"did you mean {_or([prefix + path for path in near])}?",)
    level = sorted({path.split(".")[0] for path in candidates})
    if not level:
        return ()
    return (f"modules here: {', '.join(prefix + p for p in level[: 2 * SHOWN])}",)


def _or(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"


def two_rests(first: Part, second: Part) -> Diagnostic:
    """Only one part can take what is left."""
    return Diagnostic(
        "DFS202",
        f"parts {first.name} and {second.name} both take the rest",
        Label(second.span, "takes the rest again"),
        (Label(first.span, "takes the rest"),),
        helps=("name the modules of one of them",),
    )


def shared_operation(
    first: Part, second: Part, shared: Sequence[Operation], *, same_iteration: bool
) -> Diagnostic:
    """Parts are disjoint."""
    operation = shared[0]
    count = "an operation" if len(shared) == 1 else f"{len(shared)} operations"
    where = "" if same_iteration else " of another iteration"
    return Diagnostic(
        "DFS202",
        f"parts {first.name} and {second.name} share {count}{where}",
        Label(second.selector.span, f"takes {describe(operation)} again"),
        (Label(first.selector.span, f"{first.name} already has it"),),
        notes=sources([operation]),
        helps=(f"take it away from one of them, for example '- {first.name}'",),
    )


def unclaimed(
    each: Each, paths: tuple[str, ...], operations: Sequence[Operation]
) -> Diagnostic:
    """Operations between the parts that no part takes."""
    inside = [
        operation
        for operation in operations
        if any(_below(operation.module, path) for path in paths)
    ]
    if not inside:
        modules = list(dict.fromkeys(operation.module for operation in operations))
        return Diagnostic(
            "DFS203",
            "operations lie between the modules that this 'each' repeats over",
            Label(each.path.span, f"leaves out {', '.join(modules[:SHOWN])}"),
            notes=sources(operations),
            helps=("match every layer between the first and the last",),
        )
    relative = list(
        dict.fromkeys(_relative(operation.module, paths) for operation in inside)
    )
    return Diagnostic(
        "DFS203",
        f"no part takes {_or(relative[:SHOWN])}, which runs between parts",
        Label(each.timeline_span, "parts must be complete between first and last"),
        notes=sources(inside),
        helps=(
            f"add '+ {relative[0]}' to a part, or give one part 'rest'",
            "dfsc show --parts lists what every part holds",
        ),
    )


def not_convex(
    part: Part, other: str, leaves_at: Operation, returns_at: Operation
) -> Diagnostic:
    """A part that needs another part which needs it."""
    return Diagnostic(
        "DFS204",
        f"part {part.name} cannot run in one go: {other} needs its results, and it "
        f"needs results of {other}",
        Label(part.selector.span, f"goes through {other} and comes back"),
        notes=(
            f"leaves at {describe(leaves_at)}{_source(leaves_at)}",
            f"comes back at {describe(returns_at)}{_source(returns_at)}",
        ),
        helps=(f"move one of the two into {other}, or cut {part.name} in two parts",),
    )


def layers_differ(
    each: Each, part: Part | None, reason: str, paths: tuple[str, str]
) -> Diagnostic:
    """Two iterations whose parts read each other differently."""
    name = part.name if part else "the result"
    return Diagnostic(
        "DFS205",
        f"{name} differs between {paths[0]} and {paths[1]}: {reason}",
        Label(part.selector.span if part else each.path.span, "differs"),
        (Label(each.path.span, "one timeline for all of these"),) if part else (),
        helps=("let the 'each' match only layers that are connected alike",),
    )


def foreign_write(part: Part, operation: Operation, maker: str) -> Diagnostic:
    """An in-place write to a tensor that crosses a part's boundary."""
    return Diagnostic(
        "DFS206",
        f"part {part.name} writes in place into a tensor that {maker} made",
        Label(part.selector.span, describe(operation)),
        notes=sources([operation]),
        helps=(f"put the operation into the part that made the tensor ({maker})",),
    )


def rows_mixed(
    split: Split, part: str, operation: Operation, reason: str
) -> Diagnostic:
    """The split would change the result."""
    return Diagnostic(
        "DFS601",
        f"{split.dimension} cannot be split: {reason}",
        Label(split.span, f"{part} mixes the rows of the pieces"),
        notes=(f"at {describe(operation)}{_source(operation)}",),
        helps=("leave that operation out of the parts, or do not split",),
    )


def not_sliceable(split: Split, value: str, reason: str) -> Diagnostic:
    """A value whose pieces are not views of it."""
    return Diagnostic(
        "DFS602",
        f"{value} cannot be cut along {split.dimension}: {reason}",
        Label(split.span),
        helps=("the split dimension must be the first one of every tensor",),
    )


def describe(operation: Operation) -> str:
    """An operation in the words of the user's model."""
    name = operation.operator.removeprefix("aten.").removesuffix(".default")
    return f"{name} in {operation.module or 'the model itself'}"


def _source(operation: Operation) -> str:
    return f" ({operation.source})" if operation.source else ""


def sources(operations: Sequence[Operation]) -> tuple[str, ...]:
    """Up to five operations with their source lines."""
    lines = [f"{describe(o)}{_source(o)}" for o in operations]
    shown = list(dict.fromkeys(lines))
    more = len(shown) - SHOWN
    return (*shown[:SHOWN], *((f"and {more} more",) if more > 0 else ()))


def _below(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _relative(module: str, paths: tuple[str, ...]) -> str:
    for path in paths:
        if module == path:
            return "(own in .)"
        if module.startswith(f"{path}."):
            return module[len(path) :]
    return f"root.{module}"
