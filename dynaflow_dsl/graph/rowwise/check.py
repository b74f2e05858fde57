"""Decide whether a region of a graph may run once per microbatch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from dynaflow_dsl.graph.model import (
    Graph,
    Operation,
    Size,
    Value,
)
from dynaflow_dsl.graph.rowwise.indexing import BY_INDEX
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
from dynaflow_dsl.graph.rowwise.storage import Storages, find_storages, hazards


def check_rows(
    graph: Graph,
    dimension: str,
    region: Collection[str],
    apart: Collection[str] = (),
) -> RowCheck:
    """Decide whether the operations named in `region` are row-wise in `dimension`.

    Those operations run once per piece of the dimension, all others once on whole
    tensors. Every refusal stands for itself: what follows from a refused operation is
    not refused again. `apart` are inputs without rows in which microbatches keep apart,
    as the target says: rows may write there by index, and read by index what was
    written. Raises ValueError when the graph has no such dimension.
    """
    if dimension not in {name for name, _, _ in graph.dimensions}:
        raise ValueError(f"the graph has no dimension {dimension}")
    names = frozenset(region)
    state = _State(dimension, find_storages(graph, names), _producers(graph))
    for item in graph.inputs:
        state.values[item.value.name] = item.value
        if item.name in apart:
            state.apart.add(item.value.storage)
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                state.values[value.name] = value
    for operation in graph.operations:
        if operation.name in names:
            _step(state, operation, names)
    _check_leaving(state, graph, names)
    for name, reason in hazards(graph, names, state.storages, state.facts):
        state.refuse(name, reason)
    return RowCheck(state.facts, tuple(state.refusals))


@dataclass(slots=True)
class _State:
    """What is known so far. A value without a fact follows from a refusal."""

    dimension: str
    storages: Storages
    producers: dict[str, Operation]
    values: dict[str, Value] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    entered: set[str] = field(default_factory=set)
    facts_of_storage: defaultdict[int, set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )
    spoiled: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)

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
    rule = rule_for(operation)
    if isinstance(rule, str):
        state.refuse(operation.name, rule)
        _spoil(state, operation)
        return
    tensors: dict[str, Tensor] = {}
    known = True
    for name in state.storages.reads[operation.name]:
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
        _check_apart(call)
        fact = apply(call)
        if operation.writes:
            _check_write(state, call, fact)
    except RefusedError as error:
        state.refuse(operation.name, error.reason)
        _spoil(state, operation)
        return
    for value in operation.results:
        if value is not None:
            state.learn(value, fact)


def apply(call: Call) -> Fact:
    """Apply an operator's rule and hold its answer against the shapes."""
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
        if not rule.in_place or not only_first:
            raise RefusedError(f"no row rule for what {operation.operator} writes")
    # Nothing differs between microbatches, so nothing can in the result.
    same = not sized and call.all_shared() and not (rule.chance or rule.hidden)
    fact = Shared() if same else rule.apply(call)
    for value in operation.results:
        if value is not None:
            reason = why_not_fitting(fact, value.type.shape, call.dimension)
            if reason is not None:
                raise RefusedError(reason)
    return fact


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
    if fact is None or value.storage in state.spoiled:
        return None
    storages = state.storages
    return Tensor(
        value,
        fact,
        sliced=storages.is_sliced(value.storage),
        written=value.storage in storages.written,
        apart=value.storage in state.apart,
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
        if target.sliced and not (target.apart and not call.all_shared()):
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


def _check_apart(call: Call) -> None:
    """Make sure that rows find their places in what they write by index.

    Anything else would see what other microbatches have written so far.
    """
    operation = call.operation
    if operation.view:
        return
    first = operation.arguments[0] if operation.arguments else None
    for name, tensor in call.tensors.items():
        if not (tensor.apart and tensor.written):
            continue
        by_rows = any(
            isinstance(other.fact, Rows)
            for other in call.tensors.values()
            if other is not tensor
        )
        indexed = operation.operator in BY_INDEX and name == getattr(first, "name", "")
        if not (indexed and by_rows):
            raise RefusedError(
                f"reads or writes {name} otherwise than by an index of each row, and "
                "rows of other pieces write there"
            )


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
    for name in state.storages.reads[producer.name]:
        source = state.values[name]
        if source.storage == value.storage:
            root, fact = _followed(state, source)
            if not isinstance(fact, Rows):
                raise RefusedError("writes rows into a tensor that is shared")
        else:
            fact = entering_fact(source, state.dimension)
        tensors[name] = Tensor(source, fact)
    return root, apply(Call(producer, tensors, state.dimension))


def _check_leaving(state: _State, graph: Graph, region: frozenset[str]) -> None:
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
