"""What the row check knows while it goes through a graph, and what it asks of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from dynaflow_dsl.graph.model import Operation, Size, Value
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    Refusal,
    RefusedError,
    RowNumbers,
    Rows,
    Shared,
    Tensor,
    fact_of_shape,
    why_not_fitting,
)
from dynaflow_dsl.graph.rowwise.permutation import Placed, origin
from dynaflow_dsl.graph.rowwise.rules import rule_for
from dynaflow_dsl.graph.rowwise.sizes import ONE, mentions, shape_text
from dynaflow_dsl.graph.rowwise.storage import Storages


@dataclass(slots=True)
class State:
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
    by_rows: frozenset[int] = frozenset()
    disjoint: list[str] = field(default_factory=list)
    placed: dict[str, Placed] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)

    def refuse(self, operation: str, reason: str) -> None:
        """Note a refusal once."""
        refusal = Refusal(operation, reason)
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def learn(self, value: Value, fact: Fact) -> None:
        """Note the fact of a value."""
        self.facts[value.name] = fact
        self.facts_of_storage[value.storage].add(value.name)


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


def view_fact(call: Call) -> Fact:
    """Apply the rule of a view, all of whose results are split alike."""
    return apply(call)[0]


def spoil(state: State, operation: Operation) -> None:
    """Leave what the operation writes without a fact, as its results are."""
    for name in operation.writes:
        state.spoiled.add(state.values[name].storage)


def operand(
    state: State, operation: Operation, name: str, region: frozenset[str]
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
    if (kind := state.placed.get(name)) is not None:
        state.refuse(origin(kind), state.begun[origin(kind)])
    if name in state.private:
        try:
            fact = claimed_fact(state, name)
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
        disjoint=value.storage in state.by_rows,
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


def claimed_fact(state: State, name: str) -> Fact:
    """Return how a private value is split if what is stated of its maker is true.

    A view is made again by its reader, from what it views.
    """
    value, producer = state.values[name], state.producers[name]
    if producer.view:
        tensors = {}
        for source in state.storages.reads[producer.name]:
            private = source in state.private
            fact = claimed_fact(state, source) if private else state.facts.get(source)
            if fact is None:
                raise RefusedError("is a view of something that was refused")
            tensors[source] = Tensor(state.values[source], fact)
        return view_fact(Call(producer, tensors, state.dimension))
    claimed = fact_of_shape(value.type.shape, state.dimension)
    if not isinstance(claimed, Rows):
        raise RefusedError(
            f"reads {name} of shape {shape_text(value.type.shape)}, which belongs to "
            "one microbatch: there are no rows by which it could be put together"
        )
    state.claimed[name] = claimed
    return claimed


def check_write(state: State, call: Call, fact: Fact, *, by_rows: bool = False) -> None:
    """Make sure that an in-place write leaves every fact true.

    Of an operator that goes row by row (`by_rows`), operands may lie beside each other
    in the rows of one tensor: a row of each is in the same row of that.
    """
    target = call.tensors[call.operation.writes[0]]
    if fact != target.fact:
        raise RefusedError("writes values that are split otherwise than their target")
    if isinstance(fact, RowNumbers):
        raise RefusedError("changes row numbers in place")
    if isinstance(fact, Shared):
        if target.disjoint and not call.all_shared():
            state.disjoint.append(call.operation.name)
            return
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
        other.value.storage == target.value.storage
        and other is not target
        and not (by_rows and _rows_apart(other.fact) and _rows_apart(fact))
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


def _rows_apart(fact: Fact) -> bool:
    """Whether each row of a tensor is one run of its storage's rows."""
    return isinstance(fact, Rows) and fact.outer == ONE


def _check_entered_views(state: State, target: Value) -> None:
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


def _followed(state: State, value: Value) -> tuple[str, Fact]:
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
    return root, view_fact(Call(producer, tensors, state.dimension))
