"""Decide whether a region of a graph may run once per microbatch."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

from dynaflow_dsl.graph.model import Graph, Operation
from dynaflow_dsl.graph.rowwise import permutation
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    RowCheck,
    RowNumbers,
    Rows,
    Shared,
    Tensor,
)
from dynaflow_dsl.graph.rowwise.places import begin_order, follow_order
from dynaflow_dsl.graph.rowwise.rules import rule_for
from dynaflow_dsl.graph.rowwise.sizes import ONE
from dynaflow_dsl.graph.rowwise.state import (
    State,
    apply,
    check_write,
    claimed_fact,
    operand,
    spoil,
)
from dynaflow_dsl.graph.rowwise.stated import private_group, refuse_or_rely, rely
from dynaflow_dsl.graph.rowwise.storage import find_storages, hazards

NOTHING_STATED: Mapping[str, Hashable] = {}


def check_rows(
    graph: Graph,
    dimension: str,
    region: Collection[str],
    stated: Mapping[str, Hashable] = NOTHING_STATED,
    *,
    disjoint: bool = True,
) -> RowCheck:
    """Decide whether the operations named in `region` are row-wise in `dimension`.

    Those operations run once per piece of the dimension, all others once on whole
    tensors. Every refusal stands for itself: what follows from a refused operation is
    not refused again. Raises ValueError when the graph has no such dimension.

    Of operations that `stated` gives the same group, somebody states that they are
    row-wise together: that what others read of them has the rows of its microbatch
    along the axis that has the split dimension. Where no rule proves it, their results
    belong to one microbatch (they are `private`) until others read them; memory of
    others is still watched over.

    Into inputs that the target declares disjoint, rows may write at places of their
    own. Without `disjoint` they may not: two microbatches could meet in such a place.
    """
    if dimension not in {name for name, _, _ in graph.dimensions}:
        raise ValueError(f"the graph has no dimension {dimension}")
    names = frozenset(region)
    state = State(dimension, find_storages(graph, names), _producers(graph), stated)
    given = {item.value.storage for item in graph.inputs}
    state.by_rows = frozenset(
        item.value.storage
        for item in graph.inputs
        if disjoint
        and item.disjoint
        and any(
            access.writes and access.inside
            for access in state.storages.accesses.get(item.value.storage, ())
        )
    )
    for item in graph.inputs:
        state.values[item.value.name] = item.value
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                state.values[value.name] = value
                if value.storage not in given:
                    state.makers.setdefault(value.storage, operation.name)
    for operation in graph.operations:
        if operation.name in names:
            _step(state, operation, names)
    _check_leaving(state, graph, names)
    for name, reason in hazards(graph, names, state.storages, state.facts):
        state.refuse(name, reason)
    _check_all_known(state, graph, names)
    return RowCheck(
        state.facts,
        tuple(state.refusals),
        tuple(state.relied),
        frozenset(state.private),
        state.claimed,
        state.rows_written,
        tuple(state.declared),
        tuple(state.disjoint),
    )


def _producers(graph: Graph) -> dict[str, Operation]:
    return {
        value.name: operation
        for operation in graph.operations
        for value in operation.results
        if value is not None
    }


def _step(state: State, operation: Operation, region: frozenset[str]) -> None:
    """Find the facts of one operation's results, or refuse it."""
    if operation.name in state.stated:
        group = private_group(state, operation)
        if group is not None:
            rely(state, operation, region, group)
            return
    if any(name in state.placed for name in state.storages.reads[operation.name]):
        follow_order(state, operation, region)
        return
    rule = rule_for(operation)
    if isinstance(rule, str):
        refuse_or_rely(state, operation, region, rule)
        return
    tensors: dict[str, Tensor] = {}
    known = True
    for name in state.storages.reads[operation.name]:
        tensor = operand(state, operation, name, region)
        if tensor is None:
            known = False
        else:
            tensors[name] = tensor
    if not known:
        spoil(state, operation)
        return
    call = Call(operation, tensors, state.dimension)
    try:
        facts = apply(call)
        _check_places(call, facts)
        if rule.declared:
            _check_declared(state, call)
        elif operation.writes:
            check_write(state, call, facts[0])
    except RefusedError as error:
        if not begin_order(state, call, error.reason):
            refuse_or_rely(state, operation, region, error.reason)
        return
    if rule.declared and not call.all_shared():
        state.declared.append(operation.name)
    for value, fact in zip(operation.results, facts, strict=False):
        if value is not None:
            state.learn(value, fact)


def _check_places(call: Call, facts: tuple[Fact, ...]) -> None:
    """Make sure that what rows write by places is only read by rows.

    Other pieces may have written theirs already, or not yet.
    """
    operation = call.operation
    read = [t for t in call.tensors.values() if t.disjoint]
    if not read or operation.view:
        return
    by_places = operation.operator in _BY_PLACES or not operation.operator.startswith(
        "aten."
    )
    rows = bool(operation.writes) or all(isinstance(fact, Rows) for fact in facts)
    if not by_places or not rows or call.all_shared():
        raise RefusedError(
            "reads all of a tensor into which each row writes places of its own"
        )
    if any(t.disjoint for t in list(call.tensors.values())[1:]) and (
        operation.operator.startswith("aten.")
    ):
        raise RefusedError("reads places of rows as numbers")


# They read or write a tensor, their first argument, at places that others say.
_BY_PLACES = frozenset(
    {
        "aten.embedding.default",
        "aten.index.Tensor",
        "aten.index_add_.default",
        "aten.index_copy_.default",
        "aten.index_put_.default",
        "aten.index_select.default",
    }
)


def _check_declared(state: State, call: Call) -> None:
    """Make sure that every argument that is written in place keeps its fact."""
    for name in call.operation.writes:
        only = Call(
            replace(call.operation, writes=(name,)), call.tensors, state.dimension
        )
        check_write(state, only, call.tensors[name].fact, by_rows=True)


def _check_leaving(state: State, graph: Graph, region: frozenset[str]) -> None:
    """Make sure that what is read outside can be put together again.

    A view made in the region is made again outside, from what it views.
    """
    pending = [*graph.outputs]
    for operation in graph.operations:
        if operation.name not in region:
            pending.extend(state.storages.reads[operation.name])
    seen: set[str] = set()
    for name in pending:
        producer = state.producers.get(name)
        if name in seen or producer is None or producer.name not in region:
            continue
        seen.add(name)
        if producer.view:
            pending.extend(state.storages.reads[producer.name])
            continue
        fact = state.facts.get(name)
        if (kind := state.placed.get(name)) is not None:
            begun = permutation.origin(kind)
            state.refuse(begun, state.begun[begun])
            continue
        if name in state.private:
            try:
                claimed_fact(state, name)
            except RefusedError as error:
                state.refuse(producer.name, error.reason)
        if fact is None or isinstance(fact, Shared):
            continue
        if isinstance(fact, RowNumbers):
            state.refuse(
                producer.name,
                "its row numbers are read outside, and they start again in each "
                "microbatch",
            )
        elif fact.outer != ONE:
            state.refuse(
                producer.name,
                "its result is read outside, but the rows of a microbatch do not lie "
                "together in it",
            )


def _check_all_known(state: State, graph: Graph, region: frozenset[str]) -> None:
    """Refuse what fell through: without refusals, something is known of everything."""
    if state.refusals:
        return
    known = {*state.facts, *state.private, *state.placed}
    for operation in graph.operations:
        if operation.name not in region:
            continue
        names = {value.name for value in operation.results if value is not None}
        if not known.issuperset(names.union(state.storages.reads[operation.name])):
            state.refuse(operation.name, "nothing is known of what it reads or makes")
