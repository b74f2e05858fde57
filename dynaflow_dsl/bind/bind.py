"""Schedule and graph to binding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynaflow_dsl.bind.capture import check_captures, not_capturable, output_rows
from dynaflow_dsl.bind.convexity import program_order
from dynaflow_dsl.bind.dependence import Dependence, analyse
from dynaflow_dsl.bind.faults import (
    foreign_write,
    handed_on,
    layers_differ,
    nothing_left,
    own_tensor_returned,
    scope_span,
)
from dynaflow_dsl.bind.fragments import Fragments, cut
from dynaflow_dsl.bind.interface import (
    RETURNED,
    bind_outside,
    bind_parts,
    check_results,
)
from dynaflow_dsl.bind.model import Binding, BoundSection, Iteration
from dynaflow_dsl.bind.ownership import (
    AFTER_OWNER,
    BEFORE_OWNER,
    Owner,
    Ownership,
    Paths,
    assign,
)
from dynaflow_dsl.bind.programs import Mismatch
from dynaflow_dsl.bind.remainder import place_the_rest
from dynaflow_dsl.bind.rows import split_rows
from dynaflow_dsl.bind.selectors import Modules, Scope, index_modules
from dynaflow_dsl.bind.shared import release_shared
from dynaflow_dsl.bind.stated import broken_plugin
from dynaflow_dsl.bind.unmatched import partly_matched
from dynaflow_dsl.bind.variables import number_variables
from dynaflow_dsl.bind.weights import (
    bind_fetches,
    unshared,
    with_fetches,
    without_fetches,
)
from dynaflow_dsl.diagnostics import Diagnostic, Result, Severity
from dynaflow_dsl.graph.model import Graph, Operation
from dynaflow_dsl.resolve.model import Schedule, Section
from dynaflow_dsl.resolve.split import least_rows, never_cut


def bind(schedule: Schedule, graph: Graph) -> Result[Binding]:
    """Attach a schedule to one entry of a traced model.

    Finds: selectors that match nothing, shared and unclaimed operations, sections in
    the wrong order, parts that are not convex, layers that are connected differently,
    rows that a split would mix, weights that cannot be fetched.
    """
    if broken := tuple(broken_plugin(schedule)):
        return Result(None, broken)
    sections = tuple(map(without_fetches, schedule.sections))
    dependence = analyse(graph)
    modules = index_modules(graph.modules, dependence)
    ownership, paths, found = assign(sections, modules, dependence)
    if found:
        return Result(None, tuple(found))
    fetches, brought, found = bind_fetches(schedule.sections, paths, modules, graph)
    if not found:
        release_shared(sections, graph, ownership, dependence)
        found = place_the_rest(sections, paths, modules, ownership, dependence)
    if found:
        return Result(None, tuple(found))
    missing = list(_missing(sections, paths, ownership, modules))
    if missing:
        return Result(None, tuple(missing))
    orders, fault = program_order(sections, paths, ownership, dependence)
    if fault is not None:
        return Result(None, (fault,))
    fragments = cut(graph, dependence, ownership)
    joined = joined_parts(schedule)
    found = list(_own_tensors_returned(schedule, graph))
    found += _foreign_writes(schedule, ownership, dependence, fragments)
    found += _handed_on(schedule, dependence, fragments)
    rows, said = split_rows(schedule, graph, fragments, joined, dependence)
    found += said
    found += check_captures(schedule, graph)
    found += not_capturable(schedule, fragments, dependence)
    if any(item.severity is Severity.ERROR for item in found):
        return Result(None, tuple(found))
    attached = frozenset(dependence.operations[n].name for n in ownership.attached)
    counts = [len(mine) for mine in paths]
    try:
        parts, gaps, origins = bind_parts(
            orders, counts, ownership.gaps, fragments, dependence, attached
        )
        check_results(graph.outputs, origins, counts)
        before, after = (
            bind_outside(owner, fragments, origins, counts, graph, dependence)
            for owner in (BEFORE_OWNER, AFTER_OWNER)
        )
        bound = tuple(
            BoundSection(
                section,
                tuple(Iteration(i, path) for i, path in enumerate(mine)),
                tuple(inside),
            )
            for section, mine, inside in zip(sections, paths, parts, strict=True)
        )
        variables = number_variables(bound, gaps, after, graph.outputs, origins, joined)
    except Mismatch as mismatch:
        return Result(None, (_differ(mismatch, sections, paths, dependence),))
    binding = Binding(
        schedule=schedule,
        graph=graph,
        sections=with_fetches(bound, schedule.sections, fetches, brought),
        before=before,
        gaps=gaps,
        after=after,
        axes=rows.axes,
        variables=variables,
        joined=joined,
        results=graph.outputs,
        output_rows=output_rows(schedule, graph),
        stated=rows.stated,
    )
    if faults := unshared(binding, brought, _written_inputs(graph)):
        return Result(None, tuple(faults))
    return Result(binding, (*found, *_never_cut(schedule, graph)))


def _written_inputs(graph: Graph) -> frozenset[str]:
    """The graph's inputs whose memory some operation writes."""
    values = [item.value for item in graph.inputs]
    for operation in graph.operations:
        values += [value for value in operation.results if value is not None]
    storages = {value.name: value.storage for value in values}
    written = {storages[n] for operation in graph.operations for n in operation.writes}
    return frozenset(i.name for i in graph.inputs if i.value.storage in written)


def _never_cut(schedule: Schedule, graph: Graph) -> Iterator[Diagnostic]:
    """A split that no step of the entry has rows for."""
    if (split := schedule.split) is None:
        return
    for name, _, high in graph.dimensions:
        if name == split.dimension and high is not None and high < least_rows(split):
            said = f"a step of entry {graph.entry} has at most {high} rows"
            yield never_cut(split, split.span, said)


def joined_parts(schedule: Schedule) -> frozenset[str]:
    """The parts that run once over all pieces."""
    return frozenset(
        step.part
        for section in schedule.sections
        for window in section.windows
        for run in window.runs
        for step in run.steps
        if step.piece is None
    )


# What to do about results of every layer that a model returns.
_KEPT = (
    "let the model return none of what each layer makes, such as keys and values "
    "(`use_cache=False`)",
    "or give it a cache that layers write in place",
)


def _differ(
    mismatch: Mismatch,
    sections: Sequence[Section],
    paths: Paths,
    dependence: Dependence,
) -> Diagnostic:
    reads_at = _last_reader(mismatch.value, dependence)
    for section, mine in zip(sections, paths, strict=True):
        for part in section.parts:
            if part.name == mismatch.part:
                left, right = (mine[i] for i in mismatch.iterations)
                helps = _KEPT if mismatch.reason == RETURNED else ()
                return layers_differ(
                    section, part, mismatch.reason, (left, right), reads_at, helps
                )
    raise AssertionError(mismatch)


def _last_reader(value: str | None, dependence: Dependence) -> Operation | None:
    """The operation that reads a value last; a view only where nothing else does."""
    found: Operation | None = None
    for operation, names in zip(
        dependence.operations, dependence.operand_names, strict=True
    ):
        if value in names and (found is None or not operation.view):
            found = operation
    return found


def _missing(
    sections: Sequence[Section], paths: Paths, ownership: Ownership, modules: Modules
) -> Iterator[Diagnostic]:
    """Every part holds something in every iteration."""
    held = set(ownership.owner.values())
    for section, mine in zip(sections, paths, strict=True):
        parts = {part.name: part for part in section.parts}
        scopes = [Scope(modules, mine, index, parts) for index in range(len(mine))]
        for part in section.parts:
            have = [i for i in range(len(mine)) if (part.name, i) in held]
            if len(have) == len(mine):
                continue
            lacking = next(i for i in range(len(mine)) if i not in have)
            if not have:
                yield nothing_left(part)
            else:
                where = (mine[lacking], mine[have[0]])
                reason = "the first has no such operations"
                found = layers_differ(section, part, reason, where)
                yield replace(found, notes=partly_matched(part, scopes))


def _foreign_writes(
    schedule: Schedule,
    ownership: Ownership,
    dependence: Dependence,
    fragments: Fragments,
) -> Iterator[Diagnostic]:
    """In-place writes must stay in a part, or go to an input of the model."""
    makers: dict[int, set[Owner]] = defaultdict(set)
    for name, owner in fragments.maker.items():
        if not dependence.operations[dependence.producer[name]].view:
            makers[dependence.values[name].storage].add(owner)
    outside = (BEFORE_OWNER, AFTER_OWNER)
    places = {part.name: part.selector.span for part in schedule.parts}
    in_parts = {
        dependence.values[name].storage
        for owner, fragment in fragments.by_owner.items()
        if owner not in outside
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
                both = owner in outside and maker in outside
                pair = (owner.part, maker.part)
                if (both and storage not in in_parts) or pair in seen:
                    continue
                seen.add(pair)
                known = [p for p in pair if p in places]
                place = scope_span(schedule.sections[0])
                if known:
                    place = places[known[0]]
                made_at = places[known[1]] if len(set(known)) > 1 else None
                yield foreign_write(place, *pair, operation, made_at)


def _own_tensors_returned(schedule: Schedule, graph: Graph) -> Iterator[Diagnostic]:
    """Results are made by the step or given to it."""
    kinds = {item.name: item.kind for item in graph.inputs if item.argument is None}
    for name in dict.fromkeys(graph.outputs):
        if name in kinds:
            place = schedule.sections[0].span
            yield own_tensor_returned(place, name, kinds[name])


def _handed_on(
    schedule: Schedule, dependence: Dependence, fragments: Fragments
) -> Iterator[Diagnostic]:
    """What a part or a gap gives away must be its own memory.

    Views are copied into their readers; this is about operations that copy for some
    sizes or strides and give their input's memory back for others (`reshape`).
    """
    parts = {part.name: part for part in schedule.parts}
    seen: set[str] = set()
    for owner, fragment in fragments.by_owner.items():
        if owner in (BEFORE_OWNER, AFTER_OWNER) or owner.part in seen:
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
                    part = parts.get(owner.part)
                    place = scope_span(schedule.sections[0])
                    if part is not None:
                        place = part.selector.span
                    made_by = fragments.maker.get(given[value.storage])
                    maker = parts.get(made_by.part) if made_by is not None else None
                    yield handed_on(part, place, operation, maker)
