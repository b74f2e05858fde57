"""A split is legal when every row depends on itself alone, and pieces are views."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from difflib import get_close_matches

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.faults import not_sliceable, rows_mixed
from dynaflow_dsl.bind.fragments import Fragments
from dynaflow_dsl.bind.model import GAP
from dynaflow_dsl.bind.ownership import AFTER_OWNER, BEFORE_OWNER
from dynaflow_dsl.bind.phases import check_phases
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Graph, Size
from dynaflow_dsl.graph.rowwise import Rows, check_rows
from dynaflow_dsl.resolve.model import Split


def split_axes(
    split: Split,
    graph: Graph,
    fragments: Fragments,
    joined: Collection[str],
    dependence: Dependence,
) -> tuple[dict[str, int], list[Diagnostic]]:
    """The axis of every value that is cut for steps of one piece or joined after them.

    The parts in `joined` take and give whole tensors.
    """
    names = [name for name, _, _ in graph.dimensions]
    if split.dimension not in names:
        near = get_close_matches(split.dimension, names, n=1)
        return {}, [
            Diagnostic(
                "DFS102",
                f"the model has no dimension named {split.dimension}",
                Label(split.span),
                helps=(
                    f"did you mean {near[0]}?"
                    if near
                    else f"dimensions of this entry: {', '.join(names) or 'none'}",
                ),
            )
        ]
    if split.phases and (wrong := check_phases(split, graph)) is not None:
        return {}, [wrong]
    inner = {
        owner: fragment
        for owner, fragment in fragments.by_owner.items()
        if owner not in (BEFORE_OWNER, AFTER_OWNER) and owner.part not in joined
    }
    home = {number: owner for owner, f in inner.items() for number in f.numbers}
    region = {dependence.operations[number].name for number in home}
    phased = split.dimension in dict(graph.phases)
    disjoint = {item.name for item in graph.inputs if item.disjoint}
    # Where there are phases, rows of one phase may meet in such an input.
    apart = disjoint if split.phases or not phased else set[str]()
    check = check_rows(graph, split.dimension, region, apart)
    found = []
    for refusal in check.refusals:
        operation = dependence.operations[dependence.number[refusal.operation]]
        owner = home.get(dependence.number[refusal.operation])
        part = owner.part if owner else "the model"
        part = "what lies between the iterations" if part == GAP else part
        refused_by = rows_mixed(split, part, operation, refusal.reason)
        if phased and not split.phases and disjoint & set(operation.writes):
            listed = ", ".join(dict(graph.phases)[split.dimension])
            way = f"cut by phase: split {split.dimension} into [{listed}] as"
            helps = (f"{way} {split.index}", *refused_by.helps)
            refused_by = replace(refused_by, helps=helps)
        found.append(refused_by)
    if found:
        return {}, _distinct(found)
    axes: dict[str, int] = {}
    refused: set[str] = set()
    made_inside = {v for v, owner in fragments.maker.items() if owner in inner}
    for fragment in inner.values():
        for name in fragment.inputs:
            if name in made_inside or name in axes:
                continue
            shape = dependence.values[name].type.shape
            whole = Size(1, (split.dimension,))
            cuts = [axis for axis, size in enumerate(shape) if size == whole]
            if cuts and cuts[0] != 0:
                # A slice of another axis is not contiguous: its strides would depend
                # on the whole size, and a compiled part could not take it.
                # The tensors of a list are alike: one of them is enough.
                series = name.rpartition(".")[0] or name
                if series not in refused:
                    reason = f"it is dimension {cuts[0]} there"
                    found.append(not_sliceable(split, name, reason))
                refused.add(series)
            elif cuts:
                axes[name] = 0
    leaving = set(graph.outputs)
    for owner, fragment in fragments.by_owner.items():
        if owner not in inner:
            leaving.update(fragment.inputs)
    for name in sorted(leaving & made_inside):
        if isinstance(fact := check.facts.get(name), Rows):
            axes[name] = fact.axis
    return axes, found


def _distinct(found: list[Diagnostic]) -> list[Diagnostic]:
    """The same refusal in every layer is one refusal."""
    seen: dict[tuple[object, ...], Diagnostic] = {}
    for item in found:
        seen.setdefault((item.message, item.primary), item)
    return list(seen.values())
