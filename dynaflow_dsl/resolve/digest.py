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
    reference: model.ModelReference | None, schedules: Sequence[model.Schedule]
) -> str:
    """Twelve hex digits of a hash over the meaning of a file.

    Layout, comments and the way a timeline is written (a `stagger`, or the same windows
    under `order`) do not count; names, order of declarations and windows do. Parts
    count the same wherever they were declared, in the file or in one that it imports.
    """
    content = {
        "model": [reference.target, reference.arguments] if reference else None,
        "schedules": [_schedule(schedule) for schedule in schedules],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _schedule(schedule: model.Schedule) -> list[object]:
    split = schedule.split
    each = schedule.each
    # Nothing is added for what a schedule does not have, so that the digests of files
    # stay when the language grows.
    more: list[object] = []
    if schedule.parameters:
        values = [[each.name, written(each.value)] for each in schedule.parameters]
        more.append(["parameters", values])
    if schedule.requirements:
        conditions = [_expression(each.condition) for each in schedule.requirements]
        more.append(["require", conditions])
    options = [
        [stream.name, stream.priority, stream.sms]
        for stream in schedule.streams
        if stream.priority != "normal" or stream.sms is not None
    ]
    if options:
        more.append(["streams", options])
    if schedule.captures:
        sizes = [[each.dimension, each.sizes] for each in schedule.captures]
        first = schedule.captures[0]
        more.append(["capture", sizes, first.static, first.pieces])
    return [
        schedule.name,
        [stream.name for stream in schedule.streams],
        [split.dimension, list(map(str, split.weights)), split.index, split.align]
        if split
        else None,
        [each.name, _selector(each.path)],
        [[part.name, part.streams, _selector(part.selector)] for part in each.parts],
        [
            [
                [run.stream, [[s.part, s.piece, s.previous] for s in run.steps]]
                for run in window.runs
            ]
            for window in each.windows
        ],
        *more,
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
        case model.RestSelector():
            return ["rest"]
        case model.UnionSelector(left, right):
            return ["+", _selector(left), _selector(right)]
        case model.DifferenceSelector(left, right):
            return ["-", _selector(left), _selector(right)]
