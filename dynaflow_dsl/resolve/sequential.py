"""The schedule of an entry whose steps all run as the model was traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.groups import Groups
from dynaflow_dsl.resolve.schedule import ScheduleResolver
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import model as syntax
from dynaflow_dsl.syntax import parse

NAME = "sequential"

_TEXT = """dfs 1
schedule {name}:
    each layer in {path}:
        part layer = rest + (own in .)
        order:
            layer
"""

_WHOLE = """dfs 1
schedule {name}:
    part whole = rest
    order:
        whole
"""

Node = TypeVar("Node")


def sequential_schedule(
    schedules: Sequence[model.Schedule], place: Span
) -> model.Schedule:
    """All layers as one part, without streams or a split.

    The layers are those of the first `each` in `schedules`; they stay a loop over one
    function, which keeps the text of the module short. Without any, the whole model is
    one part. Every place in it is `place`, the line of the `select` that asks for it.
    """
    scopes = [s.each for each in schedules for s in each.sections if s.each is not None]
    text = _WHOLE.format(name=NAME)
    if scopes:
        text = _TEXT.format(name=NAME, path=scopes[0].path.span.text)
    (schedule,) = parse(Source("sequential.dfs", text)).unwrap().declarations
    assert isinstance(schedule, syntax.Schedule)
    nothing = Groups({}, frozenset(), {})
    resolved = ScheduleResolver(schedule, nothing, {}, []).resolve()
    assert resolved is not None
    return _placed_at(resolved, place)


def _placed_at(node: Node, place: Span) -> Node:
    return cast(Node, _moved(node, place))


def _moved(node: object, place: Span) -> object:
    match node:
        case Span():
            return place
        case tuple():
            return tuple(_moved(item, place) for item in node)
        case _ if is_dataclass(node) and not isinstance(node, type):
            changed = {
                each.name: _moved(getattr(node, each.name), place)
                for each in fields(node)
            }
            return replace(node, **changed)
    return node
