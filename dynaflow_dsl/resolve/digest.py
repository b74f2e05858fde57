"""What a file means, as one short digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from dynaflow_dsl.resolve import model

DIGITS = 12


def meaning_digest(
    reference: model.ModelReference | None, schedules: Sequence[model.Schedule]
) -> str:
    """Twelve hex digits of a hash over the meaning of a file.

    Layout, comments and the way a timeline is written (a `stagger`, or the same windows
    under `order`) do not count; names, order of declarations and windows do.
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
