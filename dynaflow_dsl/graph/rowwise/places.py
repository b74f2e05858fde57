"""Sorted rows in a graph: what `permutation` says, held against memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.graph.rowwise import permutation
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    RowNumbers,
    Rows,
    Shared,
    Tensor,
)
from dynaflow_dsl.graph.rowwise.permutation import Inverse, Ordered, Placed
from dynaflow_dsl.graph.rowwise.state import (
    State,
    apply,
    check_write,
    operand,
    spoil,
)

# Which result are places, where the axis is given, and which one it is otherwise.
_FOUND_PLACES = {
    "aten.topk.default": (1, 2, -1),
    "aten.sort.default": (1, 1, -1),
    "aten.max.dim": (1, 1, None),
    "aten.min.dim": (1, 1, None),
    "aten.argmax.default": (0, 1, None),
    "aten.argmin.default": (0, 1, None),
    "aten.argsort.default": (0, 1, -1),
}
_SAME_NUMBERS = frozenset(
    {
        "aten.reshape.default",
        "aten.view.default",
        "aten.flatten.using_ints",
        "aten.transpose.int",
        "aten.t.default",
        "aten.clone.default",
        "aten.contiguous.default",
        "aten.squeeze.dim",
        "aten.unsqueeze.default",
    }
)


def begin_order(state: State, call: Call, reason: str) -> bool:
    """Take a sort of rows for an order that may be undone; say whether it is one.

    If it is not undone, `reason` is why the sort is refused.
    """
    operation = call.operation
    if operation.name in state.stated or operation.writes:
        return False
    bound = None
    if call.tensors:
        bound = _key_bound(state, state.storages.reads[operation.name][0])
    found = permutation.begin(call, bound)
    if found is None:
        return False
    state.begun[operation.name] = reason
    _place(state, operation, found)
    return True


def _place(state: State, operation: Operation, found: Sequence[Placed | Fact]) -> None:
    for value, kind in zip(operation.results, found, strict=False):
        if value is None:
            continue
        if isinstance(kind, Shared | Rows | RowNumbers):
            state.learn(value, kind)
        else:
            state.placed[value.name] = kind
            state.facts_of_storage[value.storage].add(value.name)


def follow_order(state: State, operation: Operation, region: frozenset[str]) -> None:
    """Find what an operation on sorted rows gives, or refuse the sort."""
    tensors: dict[str, Tensor] = {}
    placed: dict[str, Placed] = {}
    for name in state.storages.reads[operation.name]:
        if name in state.placed and state.values[name].storage not in state.spoiled:
            placed[name] = state.placed[name]
            tensors[name] = Tensor(state.values[name], Rows(0))
        elif (tensor := operand(state, operation, name, region)) is not None:
            tensors[name] = tensor
        else:
            spoil(state, operation)
            return
    call = Call(operation, tensors, state.dimension)
    try:
        if any(tensor.disjoint for tensor in tensors.values()):
            raise RefusedError("reads places of rows by those of an order")
        found = permutation.follow(call, placed, apply)
        if operation.writes:
            _write_places(state, call, placed, found[0])
    except RefusedError:
        for kind in placed.values():
            begun = permutation.origin(kind)
            state.refuse(begun, state.begun[begun])
        spoil(state, operation)
        return
    _place(state, operation, found)


def _write_places(
    state: State, call: Call, placed: Mapping[str, Placed], found: Placed | Fact
) -> None:
    """Make sure that a write leaves what is known of places true."""
    name = call.operation.writes[0]
    target = call.tensors[name]
    storage = target.value.storage
    if any(
        other.value.storage == storage and other is not target
        for other in call.tensors.values()
    ):
        raise RefusedError("writes a tensor by reading another view of it")
    if name not in placed and isinstance(found, Inverse):
        # Nobody else may know the memory by what it was before.
        alone = state.facts_of_storage[storage] == {name}
        if not alone or target.sliced or state.storages.is_sliced(storage):
            raise RefusedError("writes an order into memory that is known otherwise")
        del state.facts[name]
        state.placed[name] = found
        return
    if name not in placed:
        only = Call(call.operation, {name: target}, call.dimension)
        check_write(state, only, target.fact)
        return
    kind = placed[name]
    if not isinstance(kind, Ordered) or found != replace(kind, keys=False):
        raise RefusedError("writes other places than those of its target")
    for other in state.facts_of_storage[storage]:
        known = state.placed.get(other)
        if not isinstance(known, Ordered) or known.by != kind.by:
            raise RefusedError("writes places into memory that is known otherwise")
        state.placed[other] = replace(known, keys=False)


def _key_bound(state: State, name: str) -> int | None:
    """The number below which all of a tensor's whole numbers are, if it is known.

    They are the places that something was found at along an axis, in another shape.
    """
    while (operation := state.producers.get(name)) is not None:
        if state.values[name].storage in state.storages.written:
            return None
        sources = state.storages.reads[operation.name]
        if operation.operator in _SAME_NUMBERS and len(sources) == 1:
            (name,) = sources
            continue
        if operation.operator in _FOUND_PLACES and len(sources) == 1:
            which, position, default = _FOUND_PLACES[operation.operator]
            shape = state.values[sources[0]].type.shape
            result = operation.results[which]
            axis = (*operation.arguments, *(None,) * 3)[position]
            axis = default if axis is None else axis
            if result is None or result.name != name or type(axis) is not int:
                return None
            if "dim" in dict(operation.keywords) or not -len(shape) <= axis < len(
                shape
            ):
                return None
            size = shape[axis]
            return None if size.dimensions else size.factor
        return None
    return None
