"""What a file means, as one short digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.values import written
from dynaflow_dsl.syntax import model as syntax

DIGITS = 12


def meaning_digest(
    reference: model.ModelReference | None,
    schedules: Sequence[model.Schedule],
    select: model.Select | None = None,
) -> str:
    """Twelve hex digits of a hash over the meaning of a file.

    Layout, comments and the way a timeline is written (a `stagger`, or the same windows
    under `order`) do not count; names, order of declarations and windows do. Parts
    count the same wherever they were declared, in the file or in one that it imports.
    """
    content: dict[str, object] = {
        "model": [reference.target, reference.arguments] if reference else None,
        "schedules": [_schedule(schedule) for schedule in schedules],
    }
    if select is not None:
        content["select"] = _select(select)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _schedule(schedule: model.Schedule) -> list[object]:
    split = schedule.split
    # Nothing is added for what a schedule does not have, so that the digests of files
    # stay when the language grows.
    more: list[object] = []
    if schedule.parameters:
        values = [[each.name, written(each.value)] for each in schedule.parameters]
        more.append(["parameters", values])
    if schedule.requirements:
        conditions = [_expression(each.condition) for each in schedule.requirements]
        more.append(["require", conditions])
    if through := [part for part in schedule.parts if part.via is not None]:
        more.append(["via", [_via(part) for part in through]])
    if stated := [part.name for part in schedule.parts if part.rowwise is not None]:
        more.append(["rowwise", stated])
    options = [
        [stream.name, stream.priority, stream.sms]
        for stream in schedule.streams
        if stream.priority != "normal" or stream.sms is not None
    ]
    if options:
        more.append(["streams", options])
    targets = [[each.name, each.gemm_sms] for each in schedule.streams]
    if targets := [pair for pair in targets if pair[1] is not None]:
        more.append(["gemm_sms", targets])
    if schedule.captures:
        sizes = [[each.dimension, each.sizes] for each in schedule.captures]
        chosen = schedule.captures[0]
        more.append(["capture", sizes, chosen.static, chosen.pieces])
    first, *others = schedule.sections
    if others or first.each is None:
        sections: list[object] = [["sections", *map(_section, schedule.sections)]]
    else:
        sections = _section(first)
    return [
        schedule.name,
        [stream.name for stream in schedule.streams],
        _split(split) if split else None,
        *sections,
        *more,
    ]


def _split(split: model.Split) -> list[object]:
    sizes = list(map(str, split.weights)) or ["phases", *split.pieces]
    return [split.dimension, sizes, split.index, split.align]


def _via(part: model.Part) -> list[object]:
    assert part.via is not None
    kernel = part.via.kernel
    arguments = [[name, written(value)] for name, value in part.via.arguments]
    flags = [kernel.symmetric_memory, kernel.trusted]
    return [part.name, kernel.target, flags, arguments]


def _section(section: model.Section) -> list[object]:
    each = section.each
    having = [_selector(each.having)] if each is not None and each.having else []
    return [
        [each.name, _selector(each.path), *having] if each is not None else None,
        [[part.name, part.streams, _selector(part.selector)] for part in section.parts],
        [
            [[run.stream, list(map(_step, run.steps))] for run in window.runs]
            for window in section.windows
        ],
    ]


def _step(step: model.Step) -> list[object]:
    after = [_step(one) for one in step.after]
    return [step.part, step.piece, step.previous, *([after] if after else ())]


def _select(select: model.Select) -> list[object]:
    return [
        select.name,
        [[each.name, written(each.value)] for each in select.parameters],
        [_expression(each.condition) for each in select.requirements],
        sorted(name.text for name in select.equal),
        [
            [line.condition and _expression(line.condition), line.schedule]
            for line in select.lines
        ],
    ]


def _expression(expression: syntax.Expression) -> list[object]:
    match expression:
        case syntax.Number(value) | syntax.String(value) | syntax.Boolean(value):
            return ["value", written(value)]
        case syntax.Symbol(name):
            return ["name", name]
        case syntax.ListOf(items):
            return ["list", *map(_expression, items)]
        case syntax.Not(operand):
            return ["not", _expression(operand)]
    return [
        expression.operator,
        _expression(expression.left),
        _expression(expression.right),
    ]


def _selector(selector: model.Selector) -> list[object]:
    match selector:
        case model.PathSelector(anchor, pattern):
            return ["path", anchor, pattern]
        case model.PartSelector(name):
            return ["part", name]
        case model.OwnSelector(operand):
            return ["own", _selector(operand)]
        case model.WeightsSelector(operand):
            return ["weights", _selector(operand)]
        case model.OperationsSelector(by, name, _, operand):
            return ["in", by, name, _selector(operand)]
        case model.RestSelector():
            return ["rest"]
        case model.UnionSelector(left, right):
            return ["+", _selector(left), _selector(right)]
        case model.DifferenceSelector(left, right):
            return ["-", _selector(left), _selector(right)]
        case model.FirstMatchSelector(choices):
            return ["or", *map(_selector, choices)]
