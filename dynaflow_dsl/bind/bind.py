"""Schedule and graph to binding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dynaflow_dsl.bind.convexity import program_order
from dynaflow_dsl.bind.dependence import Dependence, analyse
from dynaflow_dsl.bind.faults import (
    foreign_write,
    handed_on,
    layers_differ,
    own_tensor_returned,
)
from dynaflow_dsl.bind.fragments import Fragments, cut
from dynaflow_dsl.bind.interface import bind_outside, bind_parts, check_results
from dynaflow_dsl.bind.model import Binding, Iteration
from dynaflow_dsl.bind.ownership import (
    AFTER_OWNER,
    BEFORE_OWNER,
    Owner,
    Ownership,
    assign,
)
from dynaflow_dsl.bind.programs import Mismatch
from dynaflow_dsl.bind.rows import split_axes
from dynaflow_dsl.bind.selectors import index_modules
from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import Schedule, Section


def bind(schedule: Schedule, graph: Graph) -> Result[Binding]:
    """Attach a schedule to one entry of a traced model.

    Finds: selectors that match nothing, shared and unclaimed operations, parts that are
    not convex, layers that are connected differently, rows that a split would mix.
    """
    each = schedule.sections[0]
    dependence = analyse(graph)
    modules = index_modules(graph.modules, dependence)
    ownership, paths, found = assign(each, modules, dependence)
    if found:
        return Result(None, tuple(found))
    missing = list(_missing(each, paths, ownership))
    if missing:
        return Result(None, tuple(missing))
    order, fault = program_order(each, paths, ownership, dependence)
    if fault is not None:
        return Result(None, (fault,))
    fragments = cut(graph, dependence, ownership)
    found = list(_own_tensors_returned(each, graph))
    found += _foreign_writes(each, ownership, dependence, fragments)
    found += _handed_on(each, dependence, fragments)
    axes: dict[str, int] = {}
    if schedule.split is not None:
        axes, refused = split_axes(schedule.split, graph, fragments, dependence)
        found += refused
    if found:
        return Result(None, tuple(found))
    attached = frozenset(dependence.operations[n].name for n in ownership.attached)
    last = len(paths) - 1
    try:
        parts, origin = bind_parts(order, len(paths), fragments, dependence, attached)
        check_results(graph.outputs, origin, last)
        before = bind_outside(BEFORE_OWNER, fragments, origin, last, graph, dependence)
        after = bind_outside(AFTER_OWNER, fragments, origin, last, graph, dependence)
    except Mismatch as mismatch:
        part = next((p for p in each.parts if p.name == mismatch.part), None)
        left, right = (paths[i] for i in mismatch.iterations)
        found = [layers_differ(each, part, mismatch.reason, (left, right))]
        return Result(None, tuple(found))
    iterations = tuple(Iteration(i, path) for i, path in enumerate(paths))
    return Result(
        Binding(
            schedule,
            graph,
            iterations,
            before,
            tuple(parts),
            after,
            axes,
            graph.outputs,
        )
    )


def _missing(
    each: Section, paths: tuple[str, ...], ownership: Ownership
) -> Iterator[Diagnostic]:
    """Every part holds something in every iteration."""
    held = set(ownership.owner.values())
    for part in each.parts:
        have = [i for i in range(len(paths)) if (part.name, i) in held]
        if len(have) == len(paths):
            continue
        lacking = next(i for i in range(len(paths)) if i not in have)
        if not have:
            yield Diagnostic(
                "DFS201",
                f"part {part.name} holds no operation",
                Label(part.selector.span, "nothing is left for it"),
                helps=("remove the part, or take less into the others",),
            )
        else:
            where = (paths[lacking], paths[have[0]])
            yield layers_differ(each, part, "the first has no such operations", where)


def _foreign_writes(
    each: Section, ownership: Ownership, dependence: Dependence, fragments: Fragments
) -> Iterator[Diagnostic]:
    """In-place writes must stay in a part, or go to an input of the model."""
    makers: dict[int, set[Owner]] = defaultdict(set)
    for name, owner in fragments.maker.items():
        if not dependence.operations[dependence.producer[name]].view:
            makers[dependence.values[name].storage].add(owner)
    parts = {part.name: part for part in each.parts}
    in_parts = {
        dependence.values[name].storage
        for owner, fragment in fragments.by_owner.items()
        if owner.part in parts
        for name in fragment.inputs
    }
    seen: set[tuple[str, str]] = set()
    for number, owner in sorted(ownership.owner.items()):
        operation = dependence.operations[number]
        for storage in {dependence.values[name].storage for name in operation.writes}:
            # Steps that touch the memory of an input are put in order by `plan`.
            if storage in dependence.input_of_storage:
                continue
            for maker in sorted(makers[storage] - {owner}):
                outside = owner.part not in parts and maker.part not in parts
                pair = (owner.part, maker.part)
                if (outside and storage not in in_parts) or pair in seen:
                    continue
                seen.add(pair)
                yield foreign_write(
                    each, parts.get(owner.part), parts.get(maker.part), operation
                )


def _own_tensors_returned(each: Section, graph: Graph) -> Iterator[Diagnostic]:
    """Results are made by the step or given to it."""
    kinds = {item.name: item.kind for item in graph.inputs if item.argument is None}
    for name in dict.fromkeys(graph.outputs):
        if name in kinds:
            yield own_tensor_returned(each, name, kinds[name])


def _handed_on(
    each: Section, dependence: Dependence, fragments: Fragments
) -> Iterator[Diagnostic]:
    """What a part gives away must be its own memory.

    Views are copied into their readers; this is about operations that copy for some
    sizes or strides and give their input's memory back for others (`reshape`).
    """
    parts = {part.name: part for part in each.parts}
    seen: set[str] = set()
    for owner, fragment in fragments.by_owner.items():
        if owner.part not in parts or owner.part in seen:
            continue
        given = {
            dependence.values[name].storage: name
            for name in fragment.inputs
            if dependence.values[name].storage not in dependence.input_of_storage
        }
        for number in fragment.numbers:
            operation = dependence.operations[number]
            if operation.view:
                continue
            for value in operation.results:
                if (
                    value is not None
                    and value.name in fragments.read_outside
                    and value.storage in given
                ):
                    seen.add(owner.part)
                    yield handed_on(parts[owner.part], operation)
