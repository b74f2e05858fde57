"""Breaks plans on purpose, one statement at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dynaflow_dsl.plan.model import (
    Block,
    Call,
    Free,
    Hold,
    Join,
    Merge,
    Plan,
    Program,
    Record,
    Return,
    Slices,
    Statement,
    Wait,
)

SECTIONS = ("first", "loop", "last")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A changed plan; `kind` is `Wait removed` or `Free earlier`."""

    kind: str
    what: str
    plan: Plan


def removals(plan: Plan) -> Iterator[Mutation]:
    """Every statement that is no call, left out alone."""
    for section, b, s, statement in _statements(plan.step):
        if isinstance(statement, Call | Return):
            continue
        kept = _block(plan.step, section, b).statements
        changed = _changed(plan, section, b, (*kept[:s], *kept[s + 1 :]))
        yield Mutation(f"{_kind(statement)} removed", _say(section, statement), changed)


def moves(plan: Plan) -> Iterator[Mutation]:
    """Every statement but calls, earlier, later, and at the start of its block."""
    for section, b, s, statement in _statements(plan.step):
        if isinstance(statement, Call | Return):
            continue
        kept = _block(plan.step, section, b).statements
        rest = (*kept[:s], *kept[s + 1 :])
        targets = {"earlier": s - 1, "later": s + 1, "first": 0}
        for word, target in targets.items():
            if not 0 <= target <= len(rest) or target == s:
                continue
            if word == "first" and s <= 1:
                continue
            moved = (*rest[:target], statement, *rest[target:])
            changed = _changed(plan, section, b, moved)
            yield Mutation(
                f"{_kind(statement)} {word}", _say(section, statement), changed
            )


def swaps(plan: Plan) -> Iterator[Mutation]:
    """Slices and joined pieces in another order."""
    for section, b, s, statement in _statements(plan.step):
        match statement:
            case Slices(targets) if len(targets) > 1:
                other: Statement = replace(statement, targets=targets[::-1])
            case Merge(_, pieces) if len(pieces) > 1:
                other = replace(statement, pieces=pieces[::-1])
            case _:
                continue
        kept = _block(plan.step, section, b).statements
        changed = _changed(plan, section, b, (*kept[:s], other, *kept[s + 1 :]))
        yield Mutation(f"{_kind(statement)} turned", _say(section, statement), changed)


def _statements(program: Program) -> Iterator[tuple[str, int, int, Statement]]:
    for section in SECTIONS:
        for b, block in enumerate(getattr(program, section)):
            for s, statement in enumerate(block.statements):
                yield section, b, s, statement


def _block(program: Program, section: str, b: int) -> Block:
    block: Block = getattr(program, section)[b]
    return block


def _changed(
    plan: Plan, section: str, b: int, statements: tuple[Statement, ...]
) -> Plan:
    blocks = list(getattr(plan.step, section))
    blocks[b] = replace(blocks[b], statements=statements)
    return replace(plan, step=replace(plan.step, **{section: tuple(blocks)}))


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
        case Join():
            return section
        case _:
            raise AssertionError(statement)
