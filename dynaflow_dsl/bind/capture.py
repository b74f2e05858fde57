"""Captured sizes against the model: dimensions, bounds, capacities, and padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragments
from dynaflow_dsl.bind.uses import waits_on_host
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.graph.model import Graph, Input, Size
from dynaflow_dsl.graph.rowwise import Rows, check_rows
from dynaflow_dsl.graph.rowwise.sizes import ONE
from dynaflow_dsl.operations.effects import hidden_memory
from dynaflow_dsl.resolve.model import Capture, Schedule, Split

# Device types that have streams, and graphs of what is put on them.
STREAM_DEVICES = ("cuda",)


def check_captures(schedule: Schedule, graph: Graph) -> Iterator[Diagnostic]:
    """What is wrong with the `capture` lines for one entry.

    Each names a dimension of the entry, within its bounds; with any of them, every
    dimension has one, since a graph holds for one size of everything.
    """
    bounds = {name: (low, high) for name, low, high in graph.dimensions}
    split = schedule.split
    by_phase = split.dimension if split is not None and split.phases else None
    if split is not None and graph.context:
        for line in schedule.captures[:1]:
            yield _in_context(line, split)
    if split is not None and by_phase is not None:
        _, high = bounds.pop(by_phase, (1, None))
        bounds |= dict.fromkeys(split.pieces, (0, high))
    for line in schedule.captures:
        if line.dimension not in bounds:
            if split is not None and line.dimension == by_phase:
                yield _phases_instead(line, split)
            else:
                yield _unknown(line, graph)
            continue
        low, high = bounds[line.dimension]
        for size in line.sizes:
            if size < low or (high is not None and size > high):
                upper = "upwards" if high is None else f"to {high}"
                yield Diagnostic(
                    "DFS314",
                    f"the model has no step with {line.dimension} = {size}",
                    Label(line.span, f"{line.dimension} goes from {low} {upper}"),
                    helps=(f"remove the {size}",),
                )
        yield from _small_capacities(line, graph)
    captured = {line.dimension for line in schedule.captures}
    if not captured or not captured <= bounds.keys():
        # A misspelt name leaves the dimension that was meant without a line.
        return
    for name in bounds:
        if name not in captured:
            yield Diagnostic(
                "DFS314",
                f"nothing says for which sizes of {name} a step is captured",
                Label(schedule.captures[0].span, f"{name} is dynamic too"),
                helps=(f"add 'capture {name} at [...]'",),
            )


def output_rows(
    schedule: Schedule, graph: Graph
) -> Mapping[str, tuple[int | None, ...]]:
    """Captured dimensions in which a step may be padded, with the axis of each output.

    None stands for an output without rows. A dimension is missing where an operation
    mixes its rows, or where the rows that padding adds would be written into memory
    that the target does not give for it.
    """
    found: dict[str, tuple[int | None, ...]] = {}
    everything = [operation.name for operation in graph.operations]
    for line in schedule.captures:
        dimensions = {name for name, _, _ in graph.dimensions}
        if line.dimension not in dimensions or not _has_room(line.dimension, graph):
            continue
        check = check_rows(graph, line.dimension, everything)
        if check.refusals:
            continue
        axes: list[int | None] = []
        for name in graph.outputs:
            fact = check.facts.get(name)
            if isinstance(fact, Rows) and fact.outer != ONE:
                break
            axes.append(fact.axis if isinstance(fact, Rows) else None)
        else:
            found[line.dimension] = tuple(axes)
    return found


def inactive(schedule: Schedule, device: str) -> Iterator[Diagnostic]:
    """Infos about statements that have no effect on a device without streams."""
    kind = device.partition(":")[0]
    if kind in STREAM_DEVICES:
        return
    for line in schedule.captures[:1]:
        yield _without_effect(
            "'capture'", Label(line.span, "steps run uncaptured"), kind
        )
    for stream in schedule.streams:
        options = [] if stream.priority == "normal" else ["'priority'"]
        options += [] if stream.sms is None else ["'sms'"]
        options += [] if stream.gemm_sms is None else ["'gemm_sms'"]
        if options:
            what = " and ".join(options)
            label = Label(stream.span, f"{what} of this stream")
            yield _without_effect(what, label, kind)


def by_address(graph: Graph) -> tuple[str, ...]:
    """Arguments that a graph reads and writes where they lie: persistent and written.

    All others are copied to the graph's own memory before each replay.
    """
    written = _written_storages(graph)
    positions = {
        item.argument
        for item in graph.inputs
        if item.argument is not None
        and (item.kind == "persistent" or item.value.storage in written)
    }
    return tuple(
        name for place, (name, _) in enumerate(graph.signature) if place in positions
    )


def _has_room(dimension: str, graph: Graph) -> bool:
    """Whether what is read and written in place has rows beyond those of a step.

    They lie behind the step's own where the dimension is the first axis. Where rows
    write places that another input names (`disjoint`), the rows that padding adds would
    write those of an earlier step again.
    """
    if any(any(hidden_memory(each.operator).values()) for each in graph.operations):
        # Nothing tells which rows of it are a step's own.
        return False
    written = _written_storages(graph)
    rows = Size(1, (dimension,))
    return all(
        item.scratch
        and item.value.type.shape[:1] == (rows,)
        and not any(dimension in size.dimensions for size in item.value.type.shape[1:])
        for item in graph.inputs
        if item.value.storage in written
        or (item.kind == "persistent" and _has(item, dimension))
    )


def _written_storages(graph: Graph) -> set[int]:
    storages = {item.value.name: item.value.storage for item in graph.inputs}
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                storages[value.name] = value.storage
    return {storages[name] for each in graph.operations for name in each.writes}


def _has(item: Input, dimension: str) -> bool:
    return any(dimension in size.dimensions for size in item.value.type.shape)


def _small_capacities(line: Capture, graph: Graph) -> Iterator[Diagnostic]:
    if not line.sizes:
        return
    largest = line.sizes[-1]
    seen: set[str] = set()
    for item in graph.inputs:
        base = item.name.partition(".")[0]
        too_small = item.capacity is not None and item.capacity < largest
        if too_small and _has(item, line.dimension) and base not in seen:
            seen.add(base)
            yield Diagnostic(
                "DFS314",
                f"'{base}' has room for {item.capacity} rows, and {largest} are "
                "captured",
                Label(line.span, f"up to {line.dimension} = {largest}"),
                helps=(
                    f"capture at most {item.capacity}, or give '{base}' more capacity "
                    "in the trace target",
                ),
            )


def _phases_instead(line: Capture, split: Split) -> Diagnostic:
    lines = " and ".join(f"'capture {name} at [...]'" for name in split.pieces)
    return Diagnostic(
        "DFS314",
        f"a size of {line.dimension} does not say how large its pieces are",
        Label(line.name_span, "one graph holds for one size of each piece"),
        (Label(split.span, "cut by phase here"),),
        helps=(f"capture its phases: {lines}",),
    )


def _in_context(line: Capture, split: Split) -> Diagnostic:
    """DFS321: what the caller's context holds in a later step, a graph does not see."""
    return Diagnostic(
        "DFS321",
        "no CUDA graph can hold pieces that run in a context of the caller",
        Label(line.span, "steps are to be captured"),
        (Label(split.span, f"pieces of {split.dimension} enter the target's context"),),
        helps=(
            "leave 'capture' out: who makes the context may capture what he fixes in "
            "it",
        ),
    )


def not_capturable(
    schedule: Schedule, fragments: Fragments, dependence: Dependence
) -> Iterator[Diagnostic]:
    """DFS321: operations in which the host waits, inside steps to be captured whole.

    What a kernel does instead of a part's operations is seen when the step first runs.
    """
    if not schedule.captures or schedule.captures[0].pieces:
        return
    parts = {part.name: part for part in schedule.parts}
    seen: set[str] = set()
    for owner, fragment in fragments.by_owner.items():
        part = parts.get(owner.part)
        if owner.part in seen or (part is not None and part.via is not None):
            continue
        found = (dependence.operations[n] for n in fragment.numbers)
        waiting = next(filter(waits_on_host, found), None)
        if waiting is None:
            continue
        seen.add(owner.part)
        others = (
            (Label(part.selector.span, f"part {part.name} holds it"),) if part else ()
        )
        where = f" ({waiting.source})" if waiting.source is not None else ""
        yield Diagnostic(
            "DFS321",
            f"no CUDA graph can hold {waiting.operator}, in which the host waits",
            Label(schedule.captures[0].span, "the whole step is to be captured"),
            others,
            notes=(f"operation {waiting.name}{where}",),
            helps=(
                "capture what lies between such parts: '(pieces = true)'",
                "leave 'capture' out",
            ),
        )


def _unknown(line: Capture, graph: Graph) -> Diagnostic:
    names = [name for name, _, _ in graph.dimensions]
    for dimension, phases in graph.phases:
        if line.dimension in phases:
            return Diagnostic(
                "DFS314",
                f"'{line.dimension}' is a phase of {dimension}, which is not cut by "
                "phase here",
                Label(line.name_span, "no size of this schedule"),
                helps=(f"write 'capture {dimension} at [...]'",),
            )
    near = get_close_matches(line.dimension, names, n=1)
    listed = f"dimensions of this entry: {', '.join(names) or 'none'}"
    return Diagnostic(
        "DFS102",
        f"the model has no dimension named {line.dimension}",
        Label(line.name_span),
        helps=(f"did you mean {near[0]}?" if near else listed,),
    )


def _without_effect(what: str, label: Label, device: str) -> Diagnostic:
    return Diagnostic(
        "DFS704",
        f"{what} without effect on the device '{device}', which has no streams",
        label,
        severity=Severity.INFO,
    )
