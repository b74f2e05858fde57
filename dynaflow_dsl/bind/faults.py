"""What can be wrong between a schedule and a graph, said in the schedule's words."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from dynaflow_dsl.bind.selectors import Modules, Scope
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import OwnSelector, Part, PathSelector, Section, Split

SHOWN = 5


def no_iterations(each: Section, modules: Modules, *, matched: bool) -> Diagnostic:
    """The `each` matches no module that holds operations."""
    text = each.each.path.span.text
    if matched:
        return _nothing_runs(text, each.each.path)
    return Diagnostic(
        "DFS201",
        f"{text} matches no module of the model",
        Label(each.each.path.span, "matches nothing"),
        helps=_nearest(".".join(each.each.path.pattern), modules.paths, "."),
    )


def empty_selector(
    leaf: PathSelector | OwnSelector,
    path: PathSelector,
    scopes: Sequence[Scope],
    modules: Modules,
    *,
    matched: bool,
) -> Diagnostic:
    """A path in a part, with or without `own in`, selects nothing in any iteration."""
    text = path.span.text
    if matched and isinstance(leaf, OwnSelector):
        return Diagnostic(
            "DFS201",
            f"{text} has no operations of its own in the traced model",
            Label(leaf.span, "all its operations belong to modules below it"),
            helps=(f"write {text} for the module and all below",),
        )
    if matched:
        return _nothing_runs(text, path)
    base = "" if path.anchor == "root" else scopes[0].path
    prefix = f"{base}." if base else ""
    below = [name[len(prefix) :] for name in modules.paths if name.startswith(prefix)]
    anchor = "" if path.anchor == "scope" else path.anchor
    where = f" below {base}" if base else ""
    return Diagnostic(
        "DFS201",
        f"{text} matches no module{where}",
        Label(path.span, "matches nothing"),
        helps=_nearest(".".join(path.pattern), below, f"{anchor}."),
    )


def _nothing_runs(text: str, path: PathSelector) -> Diagnostic:
    return Diagnostic(
        "DFS201",
        f"{text} has no operations in the traced model",
        Label(path.span, "the module exists, but nothing runs in it"),
        helps=("remove it: a part is a set of operations",),
    )


def _nearest(wanted: str, paths: Sequence[str], prefix: str) -> tuple[str, ...]:
    pattern = wanted.split(".")
    candidates = [path.split(".") for path in paths if path]
    # `.layer.*` is near to `.layers.*`, and not to each of the layers.
    alike = dict.fromkeys(
        ".".join(
            name if set("*?").isdisjoint(segment) else segment
            for segment, name in zip(pattern, path, strict=True)
        )
        for path in candidates
        if len(path) == len(pattern)
    )
    for among in (alike, [".".join(path) for path in candidates]):
        if near := get_close_matches(wanted, among, n=SHOWN, cutoff=0.6):
            return (f"did you mean {_or([prefix + path for path in near])}?",)
    level = sorted({path[0] for path in candidates})
    if not level:
        return ()
    return (f"modules here: {', '.join(prefix + p for p in level[: 2 * SHOWN])}",)


def _or(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"


def shared_operation(
    first: Part, second: Part, shared: Sequence[Operation], *, same_iteration: bool
) -> Diagnostic:
    """Parts are disjoint."""
    operation = shared[0]
    count = "an operation" if len(shared) == 1 else f"{len(shared)} operations"
    if first.name == second.name:
        return Diagnostic(
            "DFS202",
            f"part {first.name} takes {count} in two iterations",
            Label(second.selector.span, f"takes {describe(operation)} twice"),
            notes=sources([operation]),
            helps=("select it in one iteration only: each operation runs once",),
        )
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
    each: Section, paths: tuple[str, ...], operations: Sequence[Operation]
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
            Label(each.each.path.span, f"leaves out {', '.join(modules[:SHOWN])}"),
            notes=sources(operations),
            helps=(
                "match every layer between the first and the last; operations that "
                "stand between them in the model itself are not in this release yet",
            ),
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


def against_order(
    part: Part, other: str, paths: tuple[str, str], reads_at: Operation
) -> Diagnostic:
    """A part that needs a later iteration; iterations run one after the other."""
    return Diagnostic(
        "DFS204",
        f"part {part.name} of {paths[0]} needs results of {other} of {paths[1]}, "
        "a later iteration",
        Label(part.selector.span, f"would have to wait for {other}"),
        notes=(f"at {describe(reads_at)}{_source(reads_at)}",),
        helps=("select these operations in the iteration that they belong to",),
    )


def layers_differ(
    each: Section, part: Part | None, reason: str, paths: tuple[str, str]
) -> Diagnostic:
    """Two iterations whose parts read each other differently."""
    name = part.name if part else "the result"
    return Diagnostic(
        "DFS205",
        f"{name} differs between {paths[0]} and {paths[1]}: {reason}",
        Label(part.selector.span if part else each.each.path.span, "differs"),
        (Label(each.each.path.span, "one timeline for all of these"),) if part else (),
        helps=("let the 'each' match only layers that are connected alike",),
    )


def handed_on(part: Part, operation: Operation) -> Diagnostic:
    """A result that may be the memory of what the part read."""
    return Diagnostic(
        "DFS207",
        f"part {part.name} may hand on memory that it was given",
        Label(part.selector.span, f"gives away the result of {describe(operation)}"),
        notes=(
            "for some sizes that operation returns its input, which another part made",
            *sources([operation]),
        ),
        helps=("move the operation into the part that reads its result",),
    )


def own_tensor_returned(each: Section, name: str, kind: str) -> Diagnostic:
    """The model returns one of its own tensors as it is."""
    return Diagnostic(
        "DFS020",
        f"the model returns its own {kind} {name}, which is not in this release yet",
        Label(each.span, "schedules a model that does"),
        helps=("read it from the model instead, or return a copy of it",),
    )


def foreign_write(
    each: Section, writer: Part | None, maker: Part | None, operation: Operation
) -> Diagnostic:
    """An in-place write to a tensor that crosses a part's boundary.

    None stands for what runs before all parts, or as the writer after them.
    """
    part = writer or maker
    who = f"part {writer.name}" if writer else "an operation after the parts"
    made = "was made before the parts" if maker is None else f"{maker.name} made"
    if maker is not None and writer is maker:
        made += " in another iteration"
    ways = ["use a new tensor for the result in the model"]
    if maker is not None and writer is not maker:
        ways.insert(0, f"put the operation into {maker.name}")
    return Diagnostic(
        "DFS206",
        f"{who} writes in place into a tensor that {made}",
        Label(part.selector.span if part else each.each.path.span, describe(operation)),
        notes=sources([operation]),
        helps=tuple(ways),
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
