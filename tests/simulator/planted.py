"""Plants faults in plans that are right, one statement at a time.

What a change does is not known here: the simulator tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeAlias, TypeVar

from dynaflow_dsl.plan.model import (
    Allocate,
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
from tests.simulator.random_models import with_group, with_hidden

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
    """A wait of a step that writes memory, for one whose results it does not read."""
    return _without_wait_of(_writing(draft), draft, random)


def drop_wait_for_group(draft: Draft, random: Random) -> Draft | None:
    """A wait of a step that uses a process group, for one that it does not read."""
    users = {part.name for part in draft.drawing.parts if part.group}
    return _without_wait_of(users, draft, random)


def _without_wait_of(parts: set[str], draft: Draft, random: Random) -> Draft | None:
    """Without a wait of one of the parts, which reads nothing of the other stream."""
    found = []
    calls = _places(draft, Call)
    made = {name: call.stream for _, call in calls for name in call.results}
    recorded = {record.event: record.stream for _, record in _places(draft, Record)}
    for n, wait in _places(draft, Wait):
        waiting = next((call for m, call in calls if m > n), None)
        if (
            waiting is not None
            and waiting.stream == wait.stream
            and waiting.part in parts
            and wait.event != "start"
            and recorded.get(wait.event)
            not in {made.get(name) for name in _read(waiting)}
        ):
            found.append(n)
    return _without(draft, random.choice(found)) if found else None


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
        if name in _bound(statement):
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
    """A step that reads its own stream's memory and that nobody reads moves behind the
    join."""
    joins, writing = _places(draft, Join), _writing(draft)
    made = {
        name: call.stream for _, call in _places(draft, Call) for name in call.results
    }
    read = {name for _, statement in draft.lines for name in _read(statement)}
    calls = [
        (n, call)
        for n, call in _places(draft, Call)
        if call.stream != "main"
        and call.part not in writing
        and not read & set(call.results)
        and all(made.get(name) == call.stream for name in _read(call))
    ]
    if not joins or not calls:
        return None
    n, call = random.choice(calls)
    return _inserted(_without(draft, n), joins[0][0] - 1, call)


def _read(statement: Statement) -> set[str]:
    match statement:
        case Free(names) | Hold(names) | Merge(_, names):
            return set(names)
        case Call(operands=operands, into=into):
            where = (target.where for target in into)
            given = (*operands, *where)
            return {o.name for o in given if isinstance(o, Variable | PieceOf)}
        case Return(operands):
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
    names = _read(replace(returned, operands=operands))
    frees = [m for m, free in _places(draft, Free) if names & set(free.variables)]
    draft = _changed(draft, n, replace(returned, operands=operands))
    return _without(draft, *frees)


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
    names: list[str] = []
    for n, call in _places(draft, Call):
        for k, operand in enumerate(call.operands):
            other = _another(operand, draft, names, random)
            if other is not None and other != operand:
                operands = (*call.operands[:k], other, *call.operands[k + 1 :])
                found.append((n, replace(call, operands=operands)))
        names += call.results
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


def misplace(draft: Draft, random: Random) -> Draft | None:
    """A result goes to the rows of another piece, or its tensor comes from another
    stream or never."""
    found: list[tuple[int, Statement | None]] = []
    for n, call in _places(draft, Call):
        for k, target in enumerate(call.into):
            if isinstance(target.where, PieceOf):
                piece = (target.where.piece + 1) % draft.drawing.pieces
                other = replace(target, where=replace(target.where, piece=piece))
                into = (*call.into[:k], other, *call.into[k + 1 :])
                found.append((n, replace(call, into=into)))
    for n, made in _places(draft, Allocate):
        found.append((n, None))
        others = [one for one in draft.drawing.streams if one != made.stream]
        found += [(n, replace(made, stream=one)) for one in others]
    if not found:
        return None
    n, statement = random.choice(found)
    return _without(draft, n) if statement is None else _changed(draft, n, statement)


def drop_step(draft: Draft, random: Random) -> Draft | None:
    """A step that leaves nothing to others does not run, or runs twice."""
    read = {name for _, s in draft.lines for name in _read(s)}
    writing = _writing(draft)
    calls = [
        (n, call)
        for n, call in _places(draft, Call)
        if not read & set(call.results) and not call.into and call.part not in writing
    ]
    if not calls:
        return None
    n, call = random.choice(calls)
    return _without(draft, n) if random.random() < 0.6 else _inserted(draft, n, call)


def _writing(draft: Draft) -> set[str]:
    """Parts that write memory in place."""
    parts = draft.drawing.parts
    return {part.name for part in parts if any(w for _, w in part.touches)}


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


def share(draft: Draft, random: Random) -> Draft | None:
    """Two steps that nothing orders write memory that is no tensor of theirs, or have
    their ranks meet on one process group."""
    unordered, _ = pairs(draft)
    if not unordered:
        return None
    names = {call.part for call in random.choice(unordered)}
    return _sharing(draft, names, by_group=random.random() < 0.6)


def share_on_a_stream(draft: Draft, random: Random) -> Draft | None:
    """Two parts of one stream write memory that is no tensor of theirs, in whatever
    order they happen to run."""
    parts = [part for part in draft.drawing.parts if len(set(part.streams)) == 1]
    pairs_of_parts = [
        {one.name, other.name}
        for n, one in enumerate(parts)
        for other in parts[n + 1 :]
        if one.streams[0] == other.streams[0]
    ]
    if not pairs_of_parts:
        return None
    return _sharing(draft, random.choice(pairs_of_parts), by_group=False)


def _sharing(draft: Draft, names: set[str], *, by_group: bool) -> Draft:
    change = with_group if by_group else with_hidden
    (section,) = draft.binding.sections
    parts = tuple(change(p) if p.name in names else p for p in section.parts)
    sections = (replace(section, parts=parts),)
    return replace(draft, binding=replace(draft.binding, sections=sections))


def swap_steps(draft: Draft, random: Random) -> Draft | None:
    """Two steps of one stream that touch the same memory change places."""
    calls = _places(draft, Call)
    writing = _writing(draft)
    found = []
    for k, (n, first) in enumerate(calls):
        for m, second in calls[k + 1 :]:
            between = draft.lines[n + 1 : m + 1]
            names = {name for _, s in between for name in _read(s)}
            made = {name for _, s in draft.lines[n:m] for name in _bound(s)}
            if (
                first.stream == second.stream
                and {first.part, second.part} & writing
                and not names & set(first.results)
                and not made & (_read(second) | set(second.results))
            ):
                found.append((n, first, m, second))
    if not found:
        return None
    n, first, m, second = random.choice(found)
    return _changed(_changed(draft, n, second), m, first)


def _bound(statement: Statement) -> tuple[str, ...]:
    match statement:
        case Call() | Merge():
            return _made(statement)
        case Slices(targets):
            return targets
        case Allocate(target):
            return (target,)
        case _:
            return ()


# How often each is tried first: more often what rarely applies or stands alone.
PLANTS: dict[Plant, float] = {
    drop_wait: 2,
    drop_fork: 4,
    drop_wait_for_memory: 170,
    drop_wait_for_group: 150,
    free_early: 3,
    drop_hold: 2,
    drop_join: 2,
    leave_work: 1800,
    return_from_side: 22,
    swap_pieces: 0.5,
    read_another: 0.3,
    misplace: 4,
    drop_step: 75,
    drop_name: 1,
    claim_falsely: 22,
    say_falsely: 22,
    swap_steps: 60,
    share: 90,
    share_on_a_stream: 16,
}


def with_faults(draft: Draft, random: Random) -> Draft:
    """One change, or several."""
    for _ in range(random.choice((1, 1, 1, 1, 1, 1, 1, 1, 2))):
        plants = dict(PLANTS)
        while plants:
            (plant,) = random.choices(list(plants), list(plants.values()))
            if (planted := plant(draft, random)) is not None:
                draft = planted
                break
            del plants[plant]
    return draft
