"""Breaks plans on purpose, one statement at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dynaflow_dsl.plan.model import (
    Allocate,
    Block,
    Call,
    Choice,
    Free,
    Hold,
    InputOperand,
    Join,
    Layer,
    Loop,
    Merge,
    Operand,
    PieceOf,
    Plan,
    Program,
    Record,
    Return,
    Slices,
    Statement,
    Variable,
    Wait,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A changed plan; `kind` is `Wait removed` or `Free earlier`."""

    kind: str
    what: str
    plan: Plan


def removals(plan: Plan) -> Iterator[Mutation]:
    """Every statement that is no call, left out alone."""
    for spot, s, statement in _statements(plan.step):
        if isinstance(statement, Call | Return):
            continue
        kept = _block(plan.step, spot).statements
        changed = with_block(plan, spot, (*kept[:s], *kept[s + 1 :]))
        yield Mutation(
            f"{_kind(statement)} removed", _say(_where(plan, spot), statement), changed
        )


def moves(plan: Plan) -> Iterator[Mutation]:
    """Every statement but calls, elsewhere: one place earlier or later, at the start of
    its block, at the end of the block before it and at the start of the next one."""
    blocks = [
        (n, b)
        for n, segment in enumerate(plan.step.segments)
        for b in range(len(segment.blocks))
    ]
    for spot, s, statement in _statements(plan.step):
        if isinstance(statement, Call | Return):
            continue
        kind, what = _kind(statement), _say(_where(plan, spot), statement)
        kept = _block(plan.step, spot).statements
        rest = (*kept[:s], *kept[s + 1 :])
        targets = {"earlier": s - 1, "later": s + 1, "first": 0}
        for word, target in targets.items():
            if not 0 <= target <= len(rest) or target == s:
                continue
            if word == "first" and s <= 1:
                continue
            moved = (*rest[:target], statement, *rest[target:])
            yield Mutation(f"{kind} {word}", what, with_block(plan, spot, moved))
        at = blocks.index(spot)
        without = with_block(plan, spot, rest)
        if at > 0:
            before = _block(plan.step, blocks[at - 1]).statements
            changed = with_block(without, blocks[at - 1], (*before, statement))
            yield Mutation(f"{kind} a block earlier", what, changed)
        if at + 1 < len(blocks):
            behind = _block(plan.step, blocks[at + 1]).statements
            changed = with_block(without, blocks[at + 1], (statement, *behind))
            yield Mutation(f"{kind} a block later", what, changed)


def fewer_buffers(plan: Plan) -> Iterator[Mutation]:
    """Every part that brings weights with one buffer less, or more."""
    for name, count in plan.buffers.items():
        for word, other in (("removed", count - 1), ("added", count + 1)):
            if other:
                buffers = {**plan.buffers, name: other}
                what = f"{name} brings weights to {other} buffers"
                yield Mutation(f"Buffer {word}", what, replace(plan, buffers=buffers))


def mutations(plan: Plan) -> Iterator[Mutation]:
    """All of them."""
    yield from removals(plan)
    yield from moves(plan)
    yield from swaps(plan)
    yield from rewired(plan)
    yield from shorter_loops(plan)
    yield from misplaced(plan)
    yield from fewer_buffers(plan)


def rewired(plan: Plan) -> Iterator[Mutation]:
    """Every statement with something else than it should have: a stream, an event, a
    layer, a piece, a tensor."""
    events = sorted(
        {s.event for _, _, s in _statements(plan.step) if isinstance(s, Record)}
    )
    for spot, s, statement in _statements(plan.step):
        kept = _block(plan.step, spot).statements
        for kind, others in _otherwise(statement, plan, events):
            changed = with_block(plan, spot, (*kept[:s], *others, *kept[s + 1 :]))
            yield Mutation(kind, _say(_where(plan, spot), statement), changed)


def _otherwise(
    statement: Statement, plan: Plan, events: Sequence[str]
) -> Iterator[tuple[str, tuple[Statement, ...]]]:
    match statement:
        case Call():
            yield from _calls(statement, plan)
        case Wait(stream, event) if len(plan.streams) > 1:
            other: Statement = replace(statement, stream=_after(stream, plan.streams))
            yield "Wait on another stream", (other,)
            if len(events) > 1:
                other = replace(statement, event=_after(event, events))
                yield "Wait for another event", (other,)
        case Record(_, stream) if len(plan.streams) > 1:
            other = replace(statement, stream=_after(stream, plan.streams))
            yield "Record on another stream", (other,)
        case Merge(_, pieces, axis, stream):
            yield "Merge along another axis", (replace(statement, axis=axis + 1),)
            if len(plan.streams) > 1:
                other = replace(statement, stream=_after(stream, plan.streams))
                yield "Merge on another stream", (other,)
            if len(pieces) > 1:
                other = replace(statement, pieces=(*pieces[:-1], pieces[0]))
                yield "Merge of one piece twice", (other,)
        case Return(operands):
            if len(operands) > 1:
                yield "Return turned", (Return(operands[::-1]),)
            if plan.binding.schedule.pieces > 1:
                for k, operand in enumerate(operands):
                    if isinstance(operand, Variable):
                        piece = PieceOf(operand.name, 0)
                        changed = (*operands[:k], piece, *operands[k + 1 :])
                        yield "Return of one piece", (Return(changed),)


def _calls(call: Call, plan: Plan) -> Iterator[tuple[str, tuple[Statement, ...]]]:
    yield "Call removed", ()
    yield "Call twice", (call, call)
    layer = replace(call.layer, offset=call.layer.offset - 1)
    yield "Call of the layer before", (replace(call, layer=layer),)
    pieces = range(plan.binding.schedule.pieces)
    if call.piece is not None:
        other = replace(call, piece=_after(call.piece, pieces))
        yield "Call of another piece", (other,)
    if len(plan.streams) > 1:
        stream = _after(call.stream, plan.streams)
        yield "Call on another stream", (replace(call, stream=stream),)
    if len(call.results) > 1:
        yield "Results turned", (replace(call, results=call.results[::-1]),)
    for k, operand in enumerate(call.operands):
        for kind, read in (
            ("Operand of another piece", _of_another_piece(operand, pieces)),
            ("Operand of another layer", _of_another_layer(operand)),
            ("Operands exchanged", call.operands[k - 1]),
        ):
            if read is not None and read != operand:
                operands = (*call.operands[:k], read, *call.operands[k + 1 :])
                yield kind, (replace(call, operands=operands),)


def _of_another_piece(operand: Operand, pieces: Sequence[int]) -> Operand | None:
    match operand:
        case InputOperand(piece=int(piece)) | PieceOf(_, piece):
            return replace(operand, piece=_after(piece, pieces))
        case Variable(name):
            stem, _, number = name.rpartition("_")
            if stem and number.isdigit() and int(number) in pieces:
                return Variable(f"{stem}_{_after(int(number), pieces)}")
    return None


def _of_another_layer(operand: Operand) -> Operand | None:
    match operand:
        case InputOperand(layer=Layer(offset) as layer):
            return replace(operand, layer=replace(layer, offset=offset - 1))
        case InputOperand(item=int(item)):
            return replace(operand, item=item + 1 if item == 0 else item - 1)
        case Choice(table=table) if len(set(table)) > 1:
            return replace(operand, table=(*table[1:], table[0]))
    return None


def _after(item: T, items: Sequence[T]) -> T:
    """The next one, and the first behind the last."""
    return items[(items.index(item) + 1) % len(items)]


def shorter_loops(plan: Plan) -> Iterator[Mutation]:
    """Every loop without its first or its last pass."""
    for n, segment in enumerate(plan.step.segments):
        if isinstance(segment, Loop):
            for word, start, stop in (("first", 1, 0), ("last", 0, -1)):
                shorter = replace(
                    segment, start=segment.start + start, stop=segment.stop + stop
                )
                segments = list(plan.step.segments)
                segments[n] = shorter
                yield Mutation(
                    f"Loop without its {word} pass",
                    f"{segment.start} to {segment.stop}",
                    replace(plan, step=Program(tuple(segments))),
                )


def swaps(plan: Plan) -> Iterator[Mutation]:
    """Slices and joined pieces in another order."""
    for spot, s, statement in _statements(plan.step):
        match statement:
            case Slices(targets) if len(targets) > 1:
                other: Statement = replace(statement, targets=targets[::-1])
            case Merge(_, pieces) if len(pieces) > 1:
                other = replace(statement, pieces=pieces[::-1])
            case _:
                continue
        kept = _block(plan.step, spot).statements
        changed = with_block(plan, spot, (*kept[:s], other, *kept[s + 1 :]))
        yield Mutation(
            f"{_kind(statement)} turned", _say(_where(plan, spot), statement), changed
        )


def misplaced(plan: Plan) -> Iterator[Mutation]:
    """Results that go to the rows of another piece, or are returned instead, and
    tensors for them that another stream makes."""
    pieces = plan.binding.schedule.pieces
    for spot, s, statement in _statements(plan.step):
        what = ""
        changed: list[tuple[str, Statement]] = []
        match statement:
            case Call(into=into) if into:
                what = _say(_where(plan, spot), statement)
                for k, target in enumerate(into):
                    rest = (*into[:k], *into[k + 1 :])
                    results = (*statement.results, "elsewhere")
                    kept = replace(statement, into=rest, results=results)
                    changed.append(("Target removed", kept))
                    if isinstance(target.where, PieceOf):
                        other = (target.where.piece + 1) % pieces
                        where = replace(target.where, piece=other)
                        moved = replace(target, where=where)
                        into_other = (*into[:k], moved, *into[k + 1 :])
                        one = replace(statement, into=into_other)
                        changed.append(("Target moved", one))
            case Allocate(target=name, stream=stream):
                what = f"{_where(plan, spot)}: {name}"
                for other_stream in plan.streams:
                    if other_stream != stream:
                        other_one = replace(statement, stream=other_stream)
                        changed.append(("Allocate aside", other_one))
        statements = _block(plan.step, spot).statements
        for kind, instead in changed:
            block = (*statements[:s], instead, *statements[s + 1 :])
            yield Mutation(kind, what, with_block(plan, spot, block))


# A segment of the program, and a block in it.
Spot = tuple[int, int]


def _statements(program: Program) -> Iterator[tuple[Spot, int, Statement]]:
    for n, segment in enumerate(program.segments):
        for b, block in enumerate(segment.blocks):
            for s, statement in enumerate(block.statements):
                yield (n, b), s, statement


def _block(program: Program, spot: Spot) -> Block:
    return program.segments[spot[0]].blocks[spot[1]]


def with_block(plan: Plan, spot: Spot, statements: tuple[Statement, ...]) -> Plan:
    """The plan with other statements in one block of its step."""
    segments = list(plan.step.segments)
    blocks = list(segments[spot[0]].blocks)
    blocks[spot[1]] = replace(blocks[spot[1]], statements=statements)
    segments[spot[0]] = replace(segments[spot[0]], blocks=tuple(blocks))
    return replace(plan, step=Program(tuple(segments)))


def _where(plan: Plan, spot: Spot) -> str:
    """`loop`, or which straight segment it is."""
    segments = plan.step.segments
    if isinstance(segments[spot[0]], Loop):
        return "loop"
    return "first" if spot[0] < len(segments) / 2 else "last"


def _kind(statement: Statement) -> str:
    return type(statement).__name__


def _say(section: str, statement: Statement) -> str:
    match statement:
        case Wait(stream, event, label):
            return f"{section}: {stream} waits for {event} before {label}"
        case Free(variables) | Hold(variables):
            return f"{section}: {', '.join(variables)}"
        case Record(event):
            return f"{section}: {event}"
        case Slices(targets) | Merge(_, targets):
            return f"{section}: {', '.join(targets)}"
        case Allocate(target):
            return f"{section}: {target}"
        case Call(label=label):
            return f"{section}: {label}"
        case Join() | Return():
            return section
        case _:
            raise AssertionError(statement)
