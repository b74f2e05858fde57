"""Plans with a fault planted in them.

A change names a statement of the plan as the generated module has it, where `in` says
in which part of the program it stands: `start`, `layer N`, `loop`, `last` (the last
layer where it is none of the loop's), `rest` (what is left after it) or `end`. It is
removed, moved `before` or `after` another one there (or to the `top` of that one's
block), or something takes its place:

    in = "loop"
    take = "main.wait(attn_0_done)"
    before = "side.wait(mlp_0_done)"

Calls are written as their step: `mlp[0]`. What `put` adds is a wait or a `del`, and
`rows` is the piece in whose rows a call writes its result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dynaflow_dsl.plan.model import (
    Allocate,
    Block,
    Call,
    Free,
    Hold,
    Join,
    Loop,
    Merge,
    PieceOf,
    Plan,
    Program,
    Record,
    Return,
    Segment,
    Slices,
    Statement,
    Variable,
    Wait,
)


def changed(plan: Plan, changes: Sequence[dict[str, Any]]) -> Plan:
    """The plan with all changes made to its step."""
    segments = list(plan.step.segments)
    for change in changes:
        k = _segment(segments, change["in"])
        segments[k] = _applied(segments[k], change)
    return replace(plan, step=Program(tuple(segments)))


def said(statement: Statement) -> str:
    """A statement as the module has it."""
    match statement:
        case Call():
            return statement.label
        case Record(event, stream):
            return f"{event} = {stream}.record()"
        case Wait(stream, event):
            return f"{stream}.wait({event})"
        case Slices(targets):
            return f"{', '.join(targets)} = slices"
        case Allocate(target, stream):
            return f"{target} = empty on {stream}"
        case Merge(target, pieces):
            return f"{target} = cat({', '.join(pieces)})"
        case Free(variables):
            return f"del {', '.join(variables)}"
        case Hold(variables):
            return f"hold {', '.join(variables)}"
        case Join():
            return "join"
        case Return():
            return "return"


def _segment(segments: Sequence[Segment], where: str) -> int:
    loops = [k for k, each in enumerate(segments) if isinstance(each, Loop)]
    match where.split():
        case ["start"]:
            return 0
        case ["end"]:
            return len(segments) - 1
        case ["loop"]:
            return loops[0]
        case ["rest"]:
            return len(segments) - 2
        case ["last"]:
            return len(segments) - 3
        case ["layer", number]:
            return 1 + int(number)
    raise AssertionError(where)


def _applied(segment: Segment, change: dict[str, Any]) -> Segment:
    blocks = enumerate(segment.blocks)
    statements = [(b, s) for b, block in blocks for s in block.statements]
    place = 0
    block, taken = 0, None
    if "take" in change:
        place = _find(statements, change["take"])
        block, taken = statements.pop(place)
    added = [taken] if taken is not None else []
    if "put" in change:
        added = [_made(text) for text in change["put"]]
    elif "stream" in change:
        assert isinstance(taken, Call)
        added = [replace(taken, stream=change["stream"])]
    elif "turn" in change:
        added = [_turned(taken)]
    elif "rows" in change:
        assert isinstance(taken, Call)
        (target,) = taken.into
        where = PieceOf(target.where.name, change["rows"])
        added = [replace(taken, into=(replace(target, where=where),))]
    elif not {"before", "after", "top"} & change.keys():
        added = []
    if "before" in change:
        place = _find(statements, change["before"])
        block = statements[place][0]
    elif "after" in change:
        place = _find(statements, change["after"]) + 1
        block = statements[place - 1][0]
    statements[place:place] = [(block, each) for each in added]
    made = tuple(
        Block(old.title, tuple(s for n, s in statements if n == b), old.span)
        for b, old in enumerate(segment.blocks)
    )
    return replace(segment, blocks=made)


def _find(statements: Sequence[tuple[int, Statement]], text: str) -> int:
    texts = [said(statement) for _, statement in statements]
    assert text in texts, f"no '{text}' in {texts}"
    return texts.index(text)


def _turned(statement: Statement | None) -> Statement:
    """With its pieces the other way round."""
    match statement:
        case Slices(targets):
            return replace(statement, targets=targets[::-1])
        case Merge(_, pieces):
            return replace(statement, pieces=pieces[::-1])
        case Call(operands=operands):
            return replace(statement, operands=operands[::-1])
    raise AssertionError(statement)


def _made(text: str) -> Statement:
    if match := re.fullmatch(r"(\w+)\.wait\((\w+)\)", text):
        return Wait(match[1], match[2], "", ())
    if match := re.fullmatch(r"(\w+) = (\w+)\.record\(\)", text):
        return Record(match[1], match[2])
    if match := re.fullmatch(r"del (\w+)", text):
        return Free((match[1],))
    if match := re.fullmatch(r"return (\w+)", text):
        return Return((Variable(match[1]),))
    raise AssertionError(text)
