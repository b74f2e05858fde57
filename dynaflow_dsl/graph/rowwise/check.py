"""Decide whether a region of a graph may run once per microbatch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace

from dynaflow_dsl.graph.model import (
    Graph,
    Operation,
    Size,
    Value,
)
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    Refusal,
    RefusedError,
    RowCheck,
    RowNumbers,
    Rows,
    Shared,
    Tensor,
    fact_of_shape,
    why_not_fitting,
)
from dynaflow_dsl.graph.rowwise.rules import rule_for
from dynaflow_dsl.graph.rowwise.sizes import ONE, mentions, shape_text
from dynaflow_dsl.graph.rowwise.storage import (
    Storages,
    find_storages,
    hazards,
    references,
)

NOTHING_STATED: Mapping[str, Hashable] = {}


def check_rows(
    graph: Graph,
    dimension: str,
    region: Collection[str],
    stated: Mapping[str, Hashable] = NOTHING_STATED,
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
    """
    if dimension not in {name for name, _, _ in graph.dimensions}:
        raise ValueError(f"the graph has no dimension {dimension}")
    names = frozenset(region)
    state = _State(dimension, find_storages(graph, names), _producers(graph), stated)
    given = {item.value.storage for item in graph.inputs}
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
    return RowCheck(
        state.facts,
        tuple(state.refusals),
        tuple(state.relied),
        frozenset(state.private),
        state.claimed,
        state.rows_written,
        tuple(state.declared),
    )


@dataclass(slots=True)
class _State:
    """What is known so far. A value without a fact follows from a refusal."""

    dimension: str
    storages: Storages
    producers: dict[str, Operation]
    stated: Mapping[str, Hashable]
    values: dict[str, Value] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    entered: set[str] = field(default_factory=set)
    facts_of_storage: defaultdict[int, set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )
    makers: dict[int, str] = field(default_factory=dict)
    spoiled: set[int] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)
    relied: list[Refusal] = field(default_factory=list)
    private: dict[str, Hashable] = field(default_factory=dict)
    claimed: dict[str, Rows] = field(default_factory=dict)
    rows_written: dict[str, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)

    def refuse(self, operation: str, reason: str) -> None:
        """Note a refusal once."""
        refusal = Refusal(operation, reason)
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def learn(self, value: Value, fact: Fact) -> None:
        """Note the fact of a value."""
        self.facts[value.name] = fact
        self.facts_of_storage[value.storage].add(value.name)


def _producers(graph: Graph) -> dict[str, Operation]:
    return {
        value.name: operation
        for operation in graph.operations
        for value in operation.results
        if value is not None
    }


def _step(state: _State, operation: Operation, region: frozenset[str]) -> None:
    """Find the facts of one operation's results, or refuse it."""
    if operation.name in state.stated:
        group = _private_group(state, operation)
        if group is not None:
            _rely(state, operation, region, group)
            return
    rule = rule_for(operation)
    if isinstance(rule, str):
        _refuse_or_rely(state, operation, region, rule)
        return
    tensors: dict[str, Tensor] = {}
    known = True
    for name in references(operation):
        tensor = _operand(state, operation, name, region)
        if tensor is None:
            known = False
        else:
            tensors[name] = tensor
    if not known:
        _spoil(state, operation)
        return
    call = Call(operation, tensors, state.dimension)
    try:
        facts = apply(call)
        if rule.declared:
            _check_declared(state, call)
        elif operation.writes:
            _check_write(state, call, facts[0])
    except RefusedError as error:
        _refuse_or_rely(state, operation, region, error.reason)
        return
    if rule.declared and not call.all_shared():
        state.declared.append(operation.name)
    for value, fact in zip(operation.results, facts, strict=False):
        if value is not None:
            state.learn(value, fact)


def _check_declared(state: _State, call: Call) -> None:
    """Make sure that every argument that is written in place keeps its fact."""
    for name in call.operation.writes:
        only = Call(
            replace(call.operation, writes=(name,)), call.tensors, state.dimension
        )
        _check_write(state, only, call.tensors[name].fact)


def _refuse_or_rely(
    state: _State, operation: Operation, region: frozenset[str], reason: str
) -> None:
    """Refuse an operation, or rely on what somebody states of it."""
    if operation.name in state.stated:
        state.relied.append(Refusal(operation.name, reason))
        _rely(state, operation, region, state.stated[operation.name])
    else:
        state.refuse(operation.name, reason)
        _spoil(state, operation)


def _private_group(state: _State, operation: Operation) -> Hashable | None:
    """The group to whose microbatch an operand belongs, if it is the operation's own.

    Views of another group's values are made where they are read.
    """
    mine = state.stated[operation.name]
    for name in references(operation):
        group = state.private.get(name)
        if group is not None and (operation.view or group == mine):
            return group
    return None


def _rely(
    state: _State, operation: Operation, region: frozenset[str], group: Hashable
) -> None:
    """Leave what an operation makes to its microbatch.

    It may write what stated operations made, which is then its microbatch's too, or
    the rows of what others made. What all microbatches share is no one's to write.
    """
    for name in references(operation):
        own = state.private.get(name) == group
        if not own and not _operand(state, operation, name, region):
            _spoil(state, operation)
            return
    try:
        for name in operation.writes:
            _write_privately(state, operation, name, region, group)
    except RefusedError as error:
        state.refuse(operation.name, error.reason)
        _spoil(state, operation)
        return
    for value in operation.results:
        if value is not None:
            state.private[value.name] = group


def _write_privately(
    state: _State,
    operation: Operation,
    name: str,
    region: frozenset[str],
    group: Hashable,
) -> None:
    storage = state.values[name].storage
    maker = state.makers.get(storage)
    if maker is not None and state.stated.get(maker) == group:
        for other in state.facts_of_storage.pop(storage, ()):
            state.facts.pop(other, None)
            state.private[other] = group
        return
    if name in state.private:
        raise RefusedError("writes memory of others by a view that no rule follows")
    target = _operand(state, operation, name, region)
    if target is None:
        return
    if not isinstance(target.fact, Rows):
        raise RefusedError("writes a tensor that all microbatches share")
    only = Call(replace(operation, writes=(name,)), {name: target}, state.dimension)
    _check_write(state, only, target.fact)
    state.rows_written[name] = operation.name


def _claimed(state: _State, name: str) -> Fact:
    """Return how a private value is split if what is stated of its maker is true.

    A view is made again by its reader, from what it views.
    """
    value, producer = state.values[name], state.producers[name]
    if producer.view:
        tensors = {}
        for source in references(producer):
            private = source in state.private
            fact = _claimed(state, source) if private else state.facts.get(source)
            if fact is None:
                raise RefusedError("is a view of something that was refused")
            tensors[source] = Tensor(state.values[source], fact)
        return _view_fact(Call(producer, tensors, state.dimension))
    claimed = fact_of_shape(value.type.shape, state.dimension)
    if not isinstance(claimed, Rows):
        raise RefusedError(
            f"reads {name} of shape {shape_text(value.type.shape)}, which belongs to "
            "one microbatch: there are no rows by which it could be put together"
        )
    state.claimed[name] = claimed
    return claimed


def apply(call: Call) -> tuple[Fact, ...]:
    """Apply an operator's rule and hold its answer against the shapes.

    Returns a fact for each result; for an in-place write without any, its target's.
    """
    operation = call.operation
    rule = rule_for(operation)
    if isinstance(rule, str):
        raise RefusedError(rule)
    arguments = (*operation.arguments, *(item for _, item in operation.keywords))
    sized = mentions(arguments, call.dimension)
    if sized and not rule.sizes:
        raise RefusedError("uses the size of the split dimension as a number")
    if operation.writes:
        first = operation.arguments[0] if operation.arguments else None
        only_first = operation.writes == (getattr(first, "name", None),)
        if not rule.in_place or not (only_first or rule.declared):
            raise RefusedError(f"no row rule for what {operation.operator} writes")
    # Nothing differs between microbatches, so nothing can in the result.
    same = not sized and call.all_shared() and not (rule.chance or rule.hidden)
    found = Shared() if same else rule.apply(call)
    many = max(1, len(operation.results))
    facts = found if isinstance(found, tuple) else (found,) * many
    for value, fact in zip(operation.results, facts, strict=False):
        if value is not None:
            reason = why_not_fitting(fact, value.type.shape, call.dimension)
            if reason is not None:
                raise RefusedError(reason)
    return facts


def _view_fact(call: Call) -> Fact:
    """Apply the rule of a view, all of whose results are split alike."""
    return apply(call)[0]


def _spoil(state: _State, operation: Operation) -> None:
    """Leave what the operation writes without a fact, as its results are."""
    for name in operation.writes:
        state.spoiled.add(state.values[name].storage)


def _operand(
    state: _State, operation: Operation, name: str, region: frozenset[str]
) -> Tensor | None:
    """Return an operand with its fact; the first reader lets a whole value enter."""
    value = state.values[name]
    producer = state.producers.get(name)
    outside = producer is None or producer.name not in region
    if outside and name not in state.entered:
        state.entered.add(name)
        try:
            state.learn(value, entering_fact(value, state.dimension))
        except RefusedError as error:
            state.refuse(operation.name, error.reason)
    fact = state.facts.get(name)
    if name in state.private:
        try:
            fact = _claimed(state, name)
        except RefusedError as error:
            state.refuse(operation.name, error.reason)
    if fact is None or value.storage in state.spoiled:
        return None
    storages = state.storages
    return Tensor(
        value,
        fact,
        sliced=storages.is_sliced(value.storage),
        written=value.storage in storages.written,
    )


def entering_fact(value: Value, dimension: str) -> Fact:
    """Return how a whole tensor is handed to microbatches: sliced or shared."""
    fact = fact_of_shape(value.type.shape, dimension)
    if isinstance(fact, Shared):
        return fact
    if fact is None or value.type.shape[fact.axis] != Size(1, (dimension,)):
        raise RefusedError(
            f"reads {value.name} of shape {shape_text(value.type.shape)}, which has "
            f"no one axis of size {dimension} to slice it along"
        )
    return fact


def _check_write(state: _State, call: Call, fact: Fact) -> None:
    """Make sure that an in-place write leaves every fact true."""
    target = call.tensors[call.operation.writes[0]]
    if fact != target.fact:
        raise RefusedError("writes values that are split otherwise than their target")
    if isinstance(fact, RowNumbers):
        raise RefusedError("changes row numbers in place")
    if isinstance(fact, Shared):
        if target.sliced:
            raise RefusedError("writes a tensor that all microbatches share")
        if any(
            isinstance(state.facts[name], RowNumbers)
            for name in state.facts_of_storage[target.value.storage]
        ):
            raise RefusedError("changes row numbers in place")
        return
    # What torch makes of overlapping views depends on sizes, also on that of a piece.
    if any(
        other.value.storage == target.value.storage and other is not target
        for other in call.tensors.values()
    ):
        raise RefusedError("writes a tensor by reading another view of it")
    type_ = target.value.type
    if any(
        stride.factor == 0 and size != ONE
        for size, stride in zip(type_.shape, type_.strides, strict=True)
    ):
        raise RefusedError("writes an expanded tensor, whose rows are one memory")
    for name in state.facts_of_storage[target.value.storage]:
        if not isinstance(state.facts[name], Rows):
            raise RefusedError("writes rows into a tensor that is also used without")
    if target.sliced:
        _check_entered_views(state, target.value)


def _check_entered_views(state: _State, target: Value) -> None:
    """Make sure that all slices of a written storage are the same rows.

    Several views of one outside tensor may enter; each was sliced by its own shape. A
    write through one shows in the others only in the same microbatch if following the
    views from their common root gives the same split.
    """
    roots = set()
    for name in state.storages.entering.get(target.storage, ()):
        value = state.values[name]
        try:
            root, fact = _followed(state, value)
            same = fact == entering_fact(value, state.dimension)
        except RefusedError:
            same = False
        if not same:
            raise RefusedError(
                "writes a tensor of which another view is split otherwise"
            )
        roots.add(root)
        if not isinstance(fact, Rows):
            raise RefusedError("writes rows into a tensor that is also used without")
    if len(roots) > 1:
        raise RefusedError("writes a tensor that shares memory with another one")


def _followed(state: _State, value: Value) -> tuple[str, Fact]:
    """Return what an outside value is a view of, and the split that this implies."""
    producer = state.producers.get(value.name)
    if producer is None or not producer.view:
        return value.name, entering_fact(value, state.dimension)
    tensors = {}
    root = value.name
    for name in references(producer):
        source = state.values[name]
        if source.storage == value.storage:
            root, fact = _followed(state, source)
            if not isinstance(fact, Rows):
                raise RefusedError("writes rows into a tensor that is shared")
        else:
            fact = entering_fact(source, state.dimension)
        tensors[name] = Tensor(source, fact)
    return root, _view_fact(Call(producer, tensors, state.dimension))


def _check_leaving(state: _State, graph: Graph, region: frozenset[str]) -> None:
    """Make sure that what is read outside can be put together again.

    A view made in the region is made again outside, from what it views.
    """
    pending = [*graph.outputs]
    for operation in graph.operations:
        if operation.name not in region:
            pending.extend(references(operation))
    seen: set[str] = set()
    for name in pending:
        producer = state.producers.get(name)
        if name in seen or producer is None or producer.name not in region:
            continue
        seen.add(name)
        if producer.view:
            pending.extend(references(producer))
            continue
        fact = state.facts.get(name)
        if name in state.private:
            try:
                _claimed(state, name)
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
