"""The schedule of an entry whose steps all run as the model was traced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.groups import Groups
from dynaflow_dsl.resolve.schedule import ScheduleResolver
from dynaflow_dsl.resolve.walk import placed
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


def sequential_schedules(
    schedules: Sequence[model.Schedule], place: Span
) -> Iterator[model.Schedule]:
    """Schedules of one part, without streams or a split, the best one first.

    Layers of an `each` in `schedules` stay a loop over one function, which keeps the
    text of the module short. An entry may run none of them; the last one fits all: the
    whole model as one part. Every place in them is `place`, the line of the `select`
    that asks for them.
    """
    sections = (section for each in schedules for section in each.sections)
    scopes = (section.each for section in sections if section.each is not None)
    for path in dict.fromkeys(each.path.span.text for each in scopes):
        yield _schedule(_TEXT.format(name=NAME, path=path), place)
    yield _schedule(_WHOLE.format(name=NAME), place)


def _schedule(text: str, place: Span) -> model.Schedule:
    (schedule,) = parse(Source("sequential.dfs", text)).unwrap().declarations
    assert isinstance(schedule, syntax.Schedule)
    nothing = Groups({}, frozenset(), {})
    resolved = ScheduleResolver(schedule, nothing, {}, []).resolve()
    assert resolved is not None
    return placed(resolved, lambda _: place)
