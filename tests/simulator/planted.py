"""Plants faults in plans that are right, one statement at a time.

What a change does is not known here: the simulator tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeAlias, TypeVar

from dynaflow_dsl.plan.model import (
    Call,
    Free,
    Hold,
    InputOperand,
    Join,
    Merge,
    Operand,
    PieceOf,
    Record,
    Return,
    Slices,
    Statement,
    Variable,
    Wait,
)
from tests.simulator.drafts import Draft, pairs
from tests.simulator.lifetimes import Line, walk

Plant: TypeAlias = Callable[[Draft, Random], Draft | None]
S = TypeVar("S", bound=Statement)


def _places(draft: Draft, kind: type[S]) -> list[tuple[int, S]]:
    return [(n, s) for n, (_, s) in enumerate(draft.lines) if isinstance(s, kind)]


def _with(draft: Draft, lines: list[Line]) -> Draft:
    return replace(draft, lines=lines)


def _without(draft: Draft, *places: int) -> Draft:
    kept = [line for n, line in enumerate(draft.lines) if n not in places]
    return _with(draft, kept)


def _changed(draft: Draft, n: int, statement: Statement) -> Draft:
    lines = list(draft.lines)
    lines[n] = (lines[n][0], statement)
    return _with(draft, lines)


def _inserted(draft: Draft, n: int, statement: Statement) -> Draft:
    """With a statement behind the n-th."""
    lines = list(draft.lines)
    lines.insert(n + 1, (lines[n][0], statement))
    return _with(draft, lines)


def drop_wait(draft: Draft, random: Random) -> Draft | None:
    """A wait, now and then in all layers."""
    waits = _places(draft, Wait)
    if not waits:
        return None
    n, chosen = random.choice(waits)
    alike = [m for m, wait in waits if wait == chosen]
    return _without(draft, *(alike if random.random() < 0.3 else [n]))


def drop_fork(draft: Draft, random: Random) -> Draft | None:
    """A wait for what ran before the layers."""
    waits = [n for n, wait in _places(draft, Wait) if wait.event == "start"]
    return _without(draft, random.choice(waits)) if waits else None


def drop_wait_for_memory(draft: Draft, random: Random) -> Draft | None:
    """A wait of a step for another one whose results it does not read."""
    found = []
    makers = {
        record.event: names
        for record, names in _recorded(draft)
    }
    calls = _places(draft, Call)
    for n, wait in _places(draft, Wait):
        reader = next((call for m, call in calls if m > n), None)
        if reader is None or wait.event == "start":
            continue
        read = {o.name for o in reader.operands if not isinstance(o, InputOperand)
                and hasattr(o, "name")}
        if reader.stream == wait.stream and not read & makers.get(wait.event, set()):
            found.append(n)
    return _without(draft, random.choice(found)) if found else None


def _recorded(draft: Draft) -> list[tuple[Record, set[str]]]:
    """Events with the names that the call before them has made."""
    found = []
    names: set[str] = set()
    for _, statement in draft.lines:
        match statement:
            case Call(results=results):
                names = set(results)
            case Record():
                found.append((statement, names))
    return found


def free_early(draft: Draft, random: Random) -> Draft | None:
    """A name dropped after its last use, where its maker's stream knows too little."""
    found = walk(draft.lines, draft.drawing.streams)
    early = [
        (n, binding.name)
        for binding in found.bindings
        for n in range(binding.last_use, min(binding.end, len(draft.lines) - 1))
        if not found.may_go(binding.memory, n)
    ]
    if not early:
        return None
    n, name = random.choice(early)
    rest = draft.lines[n + 1 :]
    # Where it went later, it goes now instead.
    for m, (_, statement) in enumerate(rest, start=n + 1):
        if isinstance(statement, Free) and name in statement.variables:
            draft = _without(draft, m)
            break
        if isinstance(statement, Call | Merge) and name in _made(statement):
            break
    return _inserted(draft, n, Free((name,)))


def _made(statement: Call | Merge) -> tuple[str, ...]:
    return statement.results if isinstance(statement, Call) else (statement.target,)


def drop_hold(draft: Draft, random: Random) -> Draft | None:
    """What is kept until the end is not."""
    holds = _places(draft, Hold)
    return _without(draft, random.choice(holds)[0]) if holds else None


def drop_join(draft: Draft, random: Random) -> Draft | None:
    """The step returns before its streams have met, or only after the return."""
    joins = _places(draft, Join)
    if not joins:
        return None
    (n, join) = joins[0]
    if random.random() < 0.8:
        return _without(draft, n)
    return _inserted(_without(draft, n), len(draft.lines) - 2, join)


def leave_work(draft: Draft, random: Random) -> Draft | None:
    """The last step of a side stream moves behind the join."""
    joins = _places(draft, Join)
    calls = [(n, c) for n, c in _places(draft, Call) if c.stream != "main"]
    if not joins or not calls:
        return None
    n, call = calls[-1]
    later = {name for s in draft.lines[n + 1 :] for name in _read(s[1])}
    if later & set(call.results):
        return None
    rest = _without(draft, n)
    return _inserted(rest, joins[0][0] - 1, call)


def _read(statement: Statement) -> set[str]:
    match statement:
        case Free(names) | Hold(names) | Merge(_, names):
            return set(names)
        case Call(operands=operands) | Return(operands):
            return {o.name for o in operands if isinstance(o, Variable | PieceOf)}
        case Slices(_, Variable(name)):
            return {name}
        case _:
            return set()


def return_from_side(draft: Draft, random: Random) -> Draft | None:
    """A result is returned as another stream has made it, without the copy."""
    n, returned = _places(draft, Return)[0]
    copies = {
        merge.target: merge.pieces[0]
        for _, merge in _places(draft, Merge)
        if len(merge.pieces) == 1
    }
    operands = tuple(
        Variable(copies[o.name]) if isinstance(o, Variable) and o.name in copies else o
        for o in returned.operands
    )
    if operands == returned.operands:
        return None
    return _changed(draft, n, replace(returned, operands=operands))


def swap_pieces(draft: Draft, random: Random) -> Draft | None:
    """Slices or joined pieces in another order."""
    found: list[tuple[int, Statement]] = []
    for n, slices in _places(draft, Slices):
        if len(slices.targets) > 1:
            found.append((n, replace(slices, targets=slices.targets[::-1])))
    for n, merge in _places(draft, Merge):
        if len(merge.pieces) > 1:
            found.append((n, replace(merge, pieces=merge.pieces[::-1])))
    return _changed(draft, *random.choice(found)) if found else None


def read_another(draft: Draft, random: Random) -> Draft | None:
    """An operand of a step is another piece, another layer's, or another variable."""
    found = []
    names = [name for _, call in _places(draft, Call) for name in call.results]
    for n, call in _places(draft, Call):
        for k, operand in enumerate(call.operands):
            other = _another(operand, draft, names, random)
            if other is not None and other != operand:
                operands = (*call.operands[:k], other, *call.operands[k + 1 :])
                found.append((n, replace(call, operands=operands)))
    return _changed(draft, *random.choice(found)) if found else None


def _another(
    operand: Operand, draft: Draft, names: list[str], random: Random
) -> Operand | None:
    pieces = draft.drawing.pieces
    match operand:
        case PieceOf(_, piece):
            return replace(operand, piece=(piece + 1) % pieces)
        case InputOperand(piece=int(piece)):
            return replace(operand, piece=(piece + 1) % pieces)
        case InputOperand("keys", layer=layer) if layer is not None:
            other = (layer.offset + 1) % draft.drawing.layers
            return replace(operand, layer=replace(layer, offset=other))
        case Variable():
            return Variable(random.choice(names)) if names else None
        case _:
            return None


def drop_step(draft: Draft, random: Random) -> Draft | None:
    """A step of which nobody reads a result does not run, or runs twice."""
    read = {name for _, s in draft.lines for name in _read(s)}
    calls = [
        (n, call) for n, call in _places(draft, Call) if not read & set(call.results)
    ]
    if not calls:
        return None
    n, call = random.choice(calls)
    return _without(draft, n) if random.random() < 0.6 else _inserted(draft, n, call)


def drop_name(draft: Draft, random: Random) -> Draft | None:
    """An event that is not recorded, slices that are not made, a name freed twice."""
    events = {wait.event for _, wait in _places(draft, Wait)}
    found = [n for n, record in _places(draft, Record) if record.event in events]
    found += [n for n, _ in _places(draft, Slices)]
    frees = _places(draft, Free)
    if frees and random.random() < 0.4:
        return _inserted(draft, *random.choice(frees))
    return _without(draft, random.choice(found)) if found else None


def claim_falsely(draft: Draft, random: Random) -> Draft | None:
    """Two steps are said to overlap though one follows the other."""
    _, ordered = pairs(draft)
    if not ordered:
        return None
    return replace(draft, claims=(*draft.claims, random.choice(ordered)))


def say_falsely(draft: Draft, random: Random) -> Draft | None:
    """A step is said to come after one that nothing orders before it."""
    unordered, ordered = pairs(draft)
    found = [pair for a, b in unordered for pair in ((a, b), (b, a))]
    found += [(b, a) for a, b in ordered]
    return replace(draft, said=(random.choice(found),)) if found else None


def swap_steps(draft: Draft, random: Random) -> Draft | None:
    """Two steps of one stream, of which one writes memory in place, change places."""
    calls = _places(draft, Call)
    writing = {p.name for p in draft.drawing.parts if any(w for _, w in p.touches)}
    found = [
        (n, a, m, b)
        for (n, a) in calls
        for (m, b) in calls
        if n < m and a.stream == b.stream and {a.part, b.part} & writing
        and not set(a.results) & _read(b)
    ]
    if not found:
        return None
    n, a, m, b = random.choice(found)
    return _changed(_changed(draft, n, b), m, a)


PLANTS: tuple[Plant, ...] = (
    drop_wait,
    drop_fork,
    drop_wait_for_memory,
    free_early,
    drop_hold,
    drop_join,
    leave_work,
    return_from_side,
    swap_pieces,
    read_another,
    drop_step,
    drop_name,
    claim_falsely,
    say_falsely,
    swap_steps,
)


def with_faults(draft: Draft, random: Random) -> Draft:
    """None, one or several changes."""
    for _ in range(random.choice((0, 0, 0, 1, 1, 1, 1, 1, 1, 2))):
        for plant in random.sample(PLANTS, len(PLANTS)):
            planted = plant(draft, random)
            if planted is not None:
                draft = planted
                break
    return draft
