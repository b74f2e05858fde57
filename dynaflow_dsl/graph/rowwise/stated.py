"""What somebody states of operations that no rule proves."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.graph.rowwise.model import Call, Refusal, RefusedError, Rows
from dynaflow_dsl.graph.rowwise.state import (
    State,
    check_write,
    operand,
    spoil,
)

BY_PLACES = (
    "reads a tensor into which each row writes places of its own, which no statement "
    "of a part is about"
)


def refuse_or_rely(
    state: State, operation: Operation, region: frozenset[str], reason: str
) -> None:
    """Refuse an operation, or rely on what somebody states of it."""
    if operation.name in state.stated:
        state.relied.append(Refusal(operation.name, reason))
        rely(state, operation, region, state.stated[operation.name])
    else:
        state.refuse(operation.name, reason)
        spoil(state, operation)


def private_group(state: State, operation: Operation) -> Hashable | None:
    """The group to whose microbatch an operand belongs, if it is the operation's own.

    Views of another group's values are made where they are read.
    """
    mine = state.stated[operation.name]
    for name in state.storages.reads[operation.name]:
        group = state.private.get(name)
        if group is not None and (operation.view or group == mine):
            return group
    return None


def rely(
    state: State, operation: Operation, region: frozenset[str], group: Hashable
) -> None:
    """Leave what an operation makes to its microbatch.

    It may write what stated operations made, which is then its microbatch's too, or
    the rows of what others made. What all microbatches share is no one's to write.
    """
    reads = state.storages.reads[operation.name]
    for name in reads:
        own = state.private.get(name) == group
        if not own and not operand(state, operation, name, region):
            spoil(state, operation)
            return
    try:
        if any(state.values[name].storage in state.by_rows for name in reads):
            raise RefusedError(BY_PLACES)
        for name in operation.writes:
            _write_privately(state, operation, name, region, group)
    except RefusedError as error:
        state.refuse(operation.name, error.reason)
        spoil(state, operation)
        return
    for value in operation.results:
        if value is not None:
            state.private[value.name] = group


def _write_privately(
    state: State,
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
    target = operand(state, operation, name, region)
    if target is None:
        return
    if not isinstance(target.fact, Rows):
        raise RefusedError("writes a tensor that all microbatches share")
    only = Call(replace(operation, writes=(name,)), {name: target}, state.dimension)
    check_write(state, only, target.fact)
    state.rows_written[name] = operation.name
