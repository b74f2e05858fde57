"""Schedule and graph to binding."""

from __future__ import annotations

from collections.abc import Iterator

from dynaflow_dsl.bind.convexity import program_order
from dynaflow_dsl.bind.dependence import Dependence, analyse
from dynaflow_dsl.bind.faults import foreign_write, layers_differ
from dynaflow_dsl.bind.fragments import Fragments, cut
from dynaflow_dsl.bind.interface import bind_outside, bind_parts
from dynaflow_dsl.bind.model import Binding, Iteration
from dynaflow_dsl.bind.ownership import AFTER_OWNER, BEFORE_OWNER, Ownership, assign
from dynaflow_dsl.bind.roles import Mismatch
from dynaflow_dsl.bind.rows import split_axes
from dynaflow_dsl.bind.selectors import index_modules
from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import Each, Schedule


def bind(schedule: Schedule, graph: Graph) -> Result[Binding]:
    """Attach a schedule to one entry of a traced model.

    Finds: selectors that match nothing, shared and unclaimed operations, parts that are
    not convex, layers that are connected differently, rows that a split would mix.
    """
    each = schedule.each
    dependence = analyse(graph)
    modules = index_modules(graph.modules, dependence)
    ownership, paths, found = assign(each, modules, dependence)
    if found:
        return Result(None, tuple(found))
    missing = list(_missing(each, paths, ownership))
    if missing:
        return Result(None, tuple(missing))
    order, cycle = program_order(each, ownership, dependence)
    if cycle is not None:
        return Result(None, (cycle,))
    fragments = cut(graph, dependence, ownership)
    found = list(_foreign_writes(each, ownership, dependence, fragments))
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
    each: Each, paths: tuple[str, ...], ownership: Ownership
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
    each: Each, ownership: Ownership, dependence: Dependence, fragments: Fragments
) -> Iterator[Diagnostic]:
    """In-place writes must stay in a part, or go to an input of the model."""
    storages = {
        dependence.values[name].storage: owner
        for name, owner in fragments.maker.items()
        if not dependence.operations[dependence.producer[name]].view
    }
    parts = {part.name: part for part in each.parts}
    seen: set[tuple[str, str]] = set()
    for number, owner in ownership.owner.items():
        operation = dependence.operations[number]
        for name in operation.writes:
            maker = storages.get(dependence.values[name].storage, owner)
            if maker != owner and (maker.part, owner.part) not in seen:
                seen.add((maker.part, owner.part))
                part = parts.get(owner.part) or parts.get(maker.part)
                if part is not None:
                    yield foreign_write(part, operation, maker.part)
