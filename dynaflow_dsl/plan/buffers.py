"""Memory that weights are brought to: how many buffers, and who follows whom there.

The weights of iteration i are brought to buffer i mod n. What reads them there follows
what brings them, and what brings those of iteration i follows all readers of the
iteration that the buffer held before, i - n.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dynaflow_dsl.plan.dependences import Step, WeightOrder
from dynaflow_dsl.plan.timeline import Event, claimed_pairs
from dynaflow_dsl.plan.variables import VariableTable


def count_buffers(events: Sequence[Event], table: VariableTable) -> dict[str, int]:
    """The number of buffers of each part that brings weights.

    As few as the order of issue allows: one more than the iterations by which a part is
    ahead of a reader that is issued later, or at the same time.
    """
    parts = {part.name: part for part in table.binding.parts}
    count = {name: 1 for name, part in parts.items() if part.fetches}
    if not count:
        return count

    def brought_by(reader: Event) -> tuple[str, ...]:
        part = parts.get(reader.site.part)
        return part.instances[reader.iteration].brought_by if part is not None else ()

    def apart(bringing: Event, reader: Event) -> None:
        """Both may run at once, so that they need a buffer each."""
        name = bringing.site.part
        if name in brought_by(reader):
            distance = bringing.iteration - reader.iteration
            count[name] = max(count[name], distance + 1)

    furthest: dict[str, Event] = {}
    for event in events:
        if event.site.part in count:
            furthest[event.site.part] = event
        for name in brought_by(event):
            if name in furthest:
                apart(furthest[name], event)
    for earlier, later in claimed_pairs(events):
        apart(events[earlier], events[later])
        apart(events[later], events[earlier])
    return count


def weight_order(table: VariableTable, buffers: Mapping[str, int]) -> WeightOrder:
    """Who waits for whom, with so many buffers."""
    brought_by: dict[Step, list[Step]] = defaultdict(list)
    used_before: dict[Step, list[Step]] = defaultdict(list)
    for section in table.binding.sections:
        count = len(section.iterations)
        for fetch in section.parts:
            if not fetch.fetches:
                continue
            for i in range(count):
                (bringing,) = _steps(fetch.name, i, table)
                readers = [
                    step
                    for part in section.parts
                    if fetch.name in part.instances[i].brought_by
                    for step in _steps(part.name, i, table)
                ]
                for step in readers:
                    brought_by[step].append(bringing)
                following = i + buffers[fetch.name]
                if following < count:
                    (refill,) = _steps(fetch.name, following, table)
                    used_before[refill] += readers or [bringing]
    return WeightOrder(brought_by, used_before)


def _steps(part: str, iteration: int, table: VariableTable) -> Iterator[Step]:
    joined = table.is_joined(part)
    for piece in (None,) if joined else range(table.pieces):
        yield Step(part, iteration, piece)
