"""What can be wrong between a schedule and a graph, said in the schedule's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP
from dynaflow_dsl.bind.selectors import Modules, contains_rest
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import (
    Each,
    Part,
    PathSelector,
    Section,
    Selector,
    Split,
)
from dynaflow_dsl.source import Span

SHOWN = 5

# The operations of the module itself that a section repeats.
OWN = "(own in .)"


def no_iterations(each: Each, modules: Modules, *, matched: bool) -> Diagnostic:
    """The `each` matches no module that holds operations."""
    text = each.path.span.text
    if matched:
        # Modules may run in one entry of the model and not in another.
        way = "name modules that run in each entry, or choose by 'phase' in a 'select'"
        return replace(nothing_runs(text, each.path), helps=(way,))
    return Diagnostic(
        "DFS201",
        f"{text} matches no module of the model",
        Label(each.path.span, "matches nothing"),
        helps=nearest(".".join(each.path.pattern), modules.paths, "."),
    )


def nothing_runs(text: str, path: PathSelector) -> Diagnostic:
    """A path whose modules hold no operation."""
    return Diagnostic(
        "DFS201",
        f"{text} has no operations in the traced model",
        Label(path.span, "the module exists, but nothing runs in it"),
        helps=("remove it: a part is a set of operations",),
    )


def nearest(wanted: str, paths: Sequence[str], prefix: str) -> tuple[str, ...]:
    """Help for a path that matches nothing: paths like it, else those that exist."""
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
            return (f"did you mean {joined([prefix + path for path in near])}?",)
    level = sorted({path[0] for path in candidates})
    if not level:
        return ()
    return (f"modules here: {', '.join(prefix + p for p in level[: 2 * SHOWN])}",)


def joined(items: Sequence[str]) -> str:
    """`a, b or c`."""
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


def scope_span(section: Section) -> Span:
    """What says for which modules a section runs."""
    return section.each.path.span if section.each is not None else section.timeline_span


def unclaimed(
    section: Section, paths: tuple[str, ...], operations: Sequence[Operation]
) -> Diagnostic:
    """Operations between the parts of one iteration that no part takes."""
    relative = list(
        dict.fromkeys(_relative(operation.module, paths) for operation in operations)
    )
    return Diagnostic(
        "DFS203",
        f"no part takes {joined(relative[:SHOWN])}, which runs between parts",
        Label(section.timeline_span, "parts must be complete between first and last"),
        notes=sources(operations),
        helps=(
            f"add '+ {relative[0]}' to a part{_or_rest(section, relative[0])}",
            "dfsc show --parts lists what every part holds",
        ),
    )


def _or_rest(section: Section, left: str) -> str:
    """What `rest` does about an operation between the parts of a section."""
    taker = next((p for p in section.parts if contains_rest(p.selector)), None)
    if taker is None:
        return ", or give one part 'rest'"
    if left == OWN:
        return f": the 'rest' of {taker.name} leaves own operations out"
    where = section.each.path.span.text if section.each is not None else "the model"
    return f": the 'rest' of {taker.name} takes only what lies in {where}"


def sections_exchanged(
    reader: Section, maker: Section, part: str, reads_at: Operation
) -> Diagnostic:
    """A section that reads what a later one makes."""
    return Diagnostic(
        "DFS316",
        f"{_section(reader)} reads what {_section(maker)} makes, which runs later",
        Label(scope_span(reader), f"its part {part} reads it"),
        (Label(scope_span(maker), "makes it"),),
        notes=(f"at {describe(reads_at)}{_source(reads_at)}",),
        helps=(f"write {_section(maker)} above {_section(reader)}",),
    )


def sections_mixed(
    first: Section, second: Section, part: str, reads_at: Operation
) -> Diagnostic:
    """Two sections that read each other: no order of theirs is right."""
    ways = ["repeat over modules that hold both, with the parts of both in one 'each'"]
    if first.each is None or second.each is None:
        ways = ["leave the parts outside 'each' to one side of it"]
    return Diagnostic(
        "DFS317",
        f"{_section(first)} and {_section(second)} read each other's results",
        Label(scope_span(first), f"its part {part} reads what the other makes"),
        (Label(scope_span(second), "and the other way round"),),
        notes=(f"at {describe(reads_at)}{_source(reads_at)}",),
        helps=(*ways, "sections run one after the other, each as a whole"),
    )


def _section(section: Section) -> str:
    if section.each is None:
        return f"the '{section.timeline}' outside 'each'"
    return f"'each {section.each.name}'"


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


def nothing_left(part: Part) -> Diagnostic:
    """A part for which the others leave nothing."""
    note = (
        "what follows all parts, such as a head, and what comes before them runs "
        "anyway, once on the whole batch"
    )
    return Diagnostic(
        "DFS201",
        f"part {part.name} holds no operation",
        Label(part.selector.span, "nothing is left for it"),
        notes=(note,) if contains_rest(part.selector) else (),
        helps=("remove the part, or take less into the others",),
    )


def layers_differ(
    section: Section,
    part: Part | None,
    reason: str,
    paths: tuple[str, str],
    reads_at: Operation | None = None,
    helps: tuple[str, ...] = (),
) -> Diagnostic:
    """Two iterations whose parts read each other differently; `reads_at` shows it.

    `helps` stand in place of the usual way out.
    """
    name = part.name if part else "the result"
    place = scope_span(section)
    return Diagnostic(
        "DFS205",
        f"{name} differs between {paths[0]} and {paths[1]}: {reason}",
        Label(part.selector.span if part else place, "differs"),
        (Label(place, "one timeline for all of these"),) if part else (),
        notes=(f"read at {describe(reads_at)}{_source(reads_at)}",) if reads_at else (),
        helps=helps or ("let the 'each' match only layers that are connected alike",),
    )


def handed_on(
    part: Part | None, place: Span, operation: Operation, maker: Part | None
) -> Diagnostic:
    """A result that may be the memory of what the part, or a gap, read.

    `maker` is the part that made it, if one did.
    """
    who = f"part {part.name}" if part else "an operation between the iterations"
    others: tuple[Label, ...] = ()
    if maker is not None and maker is not part:
        others = (Label(maker.selector.span, f"{maker.name} made what it was given"),)
    return Diagnostic(
        "DFS207",
        f"{who} may hand on memory that it was given",
        Label(place, f"gives away the result of {describe(operation)}"),
        others,
        notes=(
            "for some sizes that operation returns its input, which another part made",
            *sources([operation]),
        ),
        helps=("move the operation into the part that reads its result",),
    )


def own_tensor_returned(place: Span, name: str, kind: str) -> Diagnostic:
    """The model returns one of its own tensors as it is."""
    return Diagnostic(
        "DFS209",
        f"the model returns its own {kind} {name}",
        Label(place, "schedules a model that does"),
        helps=("read it from the model instead, or return a copy of it",),
    )


def foreign_write(
    place: Span,
    writer: str,
    maker: str,
    operation: Operation,
    made_at: Span | None = None,
) -> Diagnostic:
    """An in-place write to a tensor that crosses a part's boundary.

    `writer` and `maker` are names of parts, `before`, `after` or `gap`; `made_at` is
    the place of the maker where it is another one that the file has.
    """
    outside = {
        AFTER: "an operation after the parts",
        GAP: "an operation between the iterations",
    }
    who = outside.get(writer, f"part {writer}")
    made = {
        BEFORE: "was made before the parts",
        GAP: "was made between iterations",
    }.get(maker, f"{maker} made")
    if writer == maker != GAP:
        made += " in another iteration"
    ways = ["use a new tensor for the result in the model"]
    if maker not in (BEFORE, GAP) and writer != maker:
        ways.insert(0, f"put the operation into {maker}")
    return Diagnostic(
        "DFS206",
        f"{who} writes in place into a tensor that {made}",
        Label(place, describe(operation)),
        (Label(made_at, f"{maker} made it"),) if made_at is not None else (),
        notes=sources([operation]),
        helps=tuple(ways),
    )


def rows_mixed(
    split: Split,
    part: str,
    operation: Operation,
    reason: str,
    *,
    place: Span | None,
    may_state: bool,
    may_join: bool,
) -> Diagnostic:
    """The split would change the result; `place` is that of the part, if it is one.

    `may_state` says that no rule may be to blame and the part could state that it does
    not, `may_join` that the timeline can run the part once over all pieces.
    """
    ways = ["leave that operation out of the parts, or do not split"]
    if may_state:
        ways.append(
            f"if {part} as a whole keeps rows apart, state it: "
            f"'part {part} (rowwise = true)', which dfsc verify checks"
        )
    if may_join:
        ways.append(f"run {part} once over all pieces: '{part}[*]' in the timeline")
    return Diagnostic(
        "DFS601",
        f"{split.dimension} cannot be split: {reason}",
        Label(split.span, f"{part} mixes the rows of the pieces"),
        (Label(place, f"{part} holds the operation"),) if place is not None else (),
        notes=(f"at {describe(operation)}{_source(operation)}",),
        helps=tuple(ways),
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


def _relative(module: str, paths: tuple[str, ...]) -> str:
    for path in paths:
        if module == path:
            return OWN
        if module.startswith(f"{path}."):
            return module[len(path) :]
        if not path:
            return f".{module}"
    return f"root.{module}"


def no_weights(selector: Selector) -> Diagnostic:
    """A selector of weights whose modules have no parameters."""
    return Diagnostic(
        "DFS201",
        f"{selector.span.phrase} names no weights of the traced model",
        Label(selector.span, "no operation reads a parameter of these modules"),
        helps=("name modules with parameters, for example 'weights in .'",),
    )


def no_weights_in_iteration(part: Part, path: str) -> Diagnostic:
    """One iteration of several in which there is nothing to bring."""
    return Diagnostic(
        "DFS201",
        f"{part.selector.span.phrase} names no weights in {path}",
        Label(part.selector.span, "has something to bring in other iterations"),
        helps=("choose the others with 'having', or name more modules",),
    )


def brought_twice(part: Part, name: str, other: str) -> Diagnostic:
    """Two parts, or one in two iterations, that bring the same parameter."""
    again = f"{other} brings it as well"
    if other == part.name:
        again = "it is the same in several iterations"
    return Diagnostic(
        "DFS208",
        f"part {part.name} brings {name} again",
        Label(part.selector.span, again),
        helps=("leave its module out: 'weights in (. - .NAME)'",),
    )


def brought_written(part: Part, name: str) -> Diagnostic:
    """A parameter that a step changes, which the next fetch would undo."""
    return Diagnostic(
        "DFS208",
        f"part {part.name} cannot bring {name}: the model writes it",
        Label(part.selector.span, "the next time it is brought, the change is lost"),
        helps=("leave its module out: 'weights in (. - .NAME)'",),
    )


def brought_elsewhere(
    part: Part, name: str, scope: str, reader: str, *, whole: bool = False
) -> Diagnostic:
    """A parameter that is read where nothing waits for it to be brought.

    `scope` is the module of the iteration that it is brought for. With `whole` the
    reader is another executor of the module.
    """
    below = name.rpartition(".")[0].removeprefix(scope)
    leave_out = f"keep it on the device: 'weights in (. - {below or '.NAME'})'"
    helps: tuple[str, ...] = (leave_out,)
    if not below:
        helps = ("name the modules below whose weights no other iteration reads",)
    if whole:
        helps = (
            "give every schedule that reads these weights such a part",
            "leave these weights on the device in all of them",
        )
    where = "reads it where it lies" if whole else "reads it too"
    return Diagnostic(
        "DFS208",
        f"part {part.name} cannot bring {name}: {reader} {where}",
        Label(
            part.selector.span,
            "weights that are fetched are not on the device"
            if whole
            else f"brought for {scope} alone",
        ),
        helps=helps,
    )
