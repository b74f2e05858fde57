"""A split is legal when every row depends on itself alone, and pieces are views."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.faults import not_sliceable, rows_mixed
from dynaflow_dsl.bind.fragments import Fragments
from dynaflow_dsl.bind.model import GAP, StatedRows
from dynaflow_dsl.bind.ownership import AFTER_OWNER, BEFORE_OWNER
from dynaflow_dsl.bind.phases import check_phases
from dynaflow_dsl.bind.repetition import repeated_parts
from dynaflow_dsl.bind.stated import (
    as_if_stated,
    stated_operations,
    stated_rows,
    stated_unsplit,
    stating_parts,
)
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Graph, Operation, Size
from dynaflow_dsl.graph.rowwise import Refusal, Rows, check_rows
from dynaflow_dsl.resolve.model import Schedule, Split
from dynaflow_dsl.source import Span


@dataclass(frozen=True, slots=True)
class SplitRows:
    """What a split does to values: the axis of each that is cut for steps of one piece
    or joined after them, and what is only stated of parts."""

    axes: Mapping[str, int] = field(default_factory=dict)
    stated: tuple[StatedRows, ...] = ()


def split_rows(
    schedule: Schedule,
    graph: Graph,
    fragments: Fragments,
    joined: Collection[str],
    dependence: Dependence,
) -> tuple[SplitRows, list[Diagnostic]]:
    """How values are cut and joined for the steps of a schedule, and what is wrong.

    The parts in `joined` take and give whole tensors.
    """
    split = schedule.split
    unsplit = list(stated_unsplit(schedule, joined))
    if unsplit or split is None:
        return SplitRows(), unsplit
    names = [name for name, _, _ in graph.dimensions]
    if split.dimension not in names:
        return SplitRows(), [
            Diagnostic(
                "DFS102",
                f"the model has no dimension named {split.dimension}",
                Label(split.span),
                helps=_dimensions_there_are(split.dimension, names),
            )
        ]
    if split.phases and (wrong := check_phases(split, graph)) is not None:
        return SplitRows(), [wrong]
    inner = {
        owner: fragment
        for owner, fragment in fragments.by_owner.items()
        if owner not in (BEFORE_OWNER, AFTER_OWNER) and owner.part not in joined
    }
    home = {number: owner for owner, f in inner.items() for number in f.numbers}
    region = {dependence.operations[number].name for number in home}
    # Where there are phases, rows of one phase may meet in what is disjoint.
    phases = () if split.phases else dict(graph.phases).get(split.dimension, ())
    parts = stating_parts(schedule)
    joinable = _joinable(schedule, joined)
    given = stated_operations(schedule, inner, dependence)
    # What is proved need not be relied on.
    check = check_rows(graph, split.dimension, region, disjoint=not phases)
    if check.refusals and given:
        check = check_rows(graph, split.dimension, region, given, disjoint=not phases)
    shared = {item.value.storage for item in graph.inputs if item.disjoint}
    found = []
    places = {each.name: each.selector.span for each in schedule.parts}
    # By part, what would still be refused if it stated that it keeps rows apart.
    if_stated: dict[str, set[str]] = {}
    for refusal in check.refusals:
        operation = dependence.operations[dependence.number[refusal.operation]]
        owner = home.get(dependence.number[refusal.operation])
        part = owner.part if owner else "the model"
        part = "what lies between the iterations" if part == GAP else part
        meets = shared & {dependence.values[n].storage for n in operation.writes}
        if phases and meets:
            place = places.get(part)
            found.append(
                _rows_of_a_phase(split, phases, part, operation, refusal, place)
            )
            continue
        may_state = owner is not None and part == owner.part and part not in parts
        if may_state:
            if part not in if_stated:
                told = stated_operations(
                    as_if_stated(schedule, part), inner, dependence
                )
                again = check_rows(
                    graph, split.dimension, region, told, disjoint=not phases
                )
                if_stated[part] = {one.operation for one in again.refusals}
            may_state = refusal.operation not in if_stated[part]
        found.append(
            rows_mixed(
                split,
                part,
                operation,
                refusal.reason,
                place=places.get(part),
                may_state=may_state,
                may_join=part in joinable,
            )
        )
    if found:
        return SplitRows(), _distinct(found)
    stated, said = stated_rows(schedule, inner, fragments, dependence, check)
    found += said
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
    # What an engine's operators read of the piece itself is not in the graph.
    if not (graph.context or refused):
        may_repeat = [each for each in schedule.parts if each.name not in parts]
        found += repeated_parts(
            split,
            may_repeat,
            inner,
            fragments.maker,
            axes.keys(),
            {**check.facts, **check.claimed},
            joinable,
        )
    leaving = set(graph.outputs)
    for owner, fragment in fragments.by_owner.items():
        if owner not in inner:
            leaving.update(fragment.inputs)
    for name in sorted(leaving & made_inside):
        fact = check.claimed.get(name) or check.facts.get(name)
        if isinstance(fact, Rows):
            axes[name] = fact.axis
    return SplitRows(axes, stated), found


def _dimensions_there_are(wanted: str, names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        named = f'dims={{"ARGUMENT": ("{wanted}", None)}}'
        return (f"let the target name an axis of an argument so: {named}",)
    if near := get_close_matches(wanted, names, n=1):
        return (f"did you mean {near[0]}?",)
    return (f"dimensions of this entry: {', '.join(names)}",)


def _joinable(schedule: Schedule, joined: Collection[str]) -> frozenset[str]:
    """The parts that could run once over all pieces, while another one runs on each."""
    split = [
        (section, part)
        for section in schedule.sections
        for part in section.parts
        if part.name not in joined
    ]
    if len(split) == 1:
        return frozenset()
    return frozenset(
        part.name
        for section, part in split
        if section.timeline == "order" and len(set(part.streams)) == 1
    )


def _rows_of_a_phase(
    split: Split,
    phases: Sequence[str],
    part: str,
    operation: Operation,
    refusal: Refusal,
    place: Span | None,
) -> Diagnostic:
    """Rows are written where only rows of another phase are sure not to be."""
    refused = rows_mixed(
        split,
        part,
        operation,
        refusal.reason,
        place=place,
        may_state=False,
        may_join=False,
    )
    way = f"split {split.dimension} into [{', '.join(phases)}] as {split.index}"
    return replace(refused, helps=(f"cut by phase: {way}", *refused.helps))


def _distinct(found: list[Diagnostic]) -> list[Diagnostic]:
    """The same refusal in every layer is one refusal."""
    seen: dict[tuple[object, ...], Diagnostic] = {}
    for item in found:
        seen.setdefault((item.message, item.primary), item)
    return list(seen.values())
