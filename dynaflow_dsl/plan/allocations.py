"""Where the tensors are made that steps write, each its own rows.

Their memory comes from the stream that makes them, which may still use it for what lay
there before: who writes there has to know that stream to have come so far. No wait is
added for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.plan.clocks import Run
from dynaflow_dsl.plan.lifetimes import Place
from dynaflow_dsl.plan.model import Allocate, PieceOf, Target, Variable
from dynaflow_dsl.plan.timeline import Event
from dynaflow_dsl.plan.variables import VariableTable, bound
from dynaflow_dsl.resolve.model import MAIN


@dataclass(slots=True)
class Allocations:
    """What is made at each place, and the names that each event binds so.

    `ready` is right before the call of a site, `done` right behind it, before its event
    is recorded.
    """

    at: dict[Place, dict[str, Allocate]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    names: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def written(event: Event, table: VariableTable) -> Iterator[tuple[int, str]]:
    """The results, by number and value, that an event writes where all of them are."""
    part = event.site.part
    if part in (BEFORE, AFTER) or not table.written:
        return
    outputs = bound(part, table.binding).instances[event.iteration].outputs
    for k, value in enumerate(outputs):
        if value in table.written:
            yield k, value


def targets(event: Event, table: VariableTable) -> tuple[Target, ...]:
    """Where an event writes results instead of returning them."""
    piece = event.site.piece if table.pieces > 1 else None
    found = []
    for k, value in written(event, table):
        name = table.written[value]
        where = Variable(name) if piece is None else PieceOf(name, piece)
        found.append(Target(k, where))
    return tuple(found)


def place_allocations(run: Run, table: VariableTable) -> Allocations:
    """As late as can be: where the first step that writes runs, if the others follow it
    on its stream; else behind the last work of main that all of them follow."""
    found = Allocations()
    writers: dict[str, list[int]] = defaultdict(list)
    for n, event in enumerate(run.events):
        for _, value in written(event, table):
            writers[value].append(n)
    for value, events in writers.items():
        on_main = table.is_made_on_main(value)
        n = _on_main(events, run) if on_main else events[0]
        place = Place(run.events[n].site, "done" if on_main else "ready")
        name = table.written[value]
        # A loop's text is that of its first pass.
        made = Allocate(name, place.site.stream, table.types[value])
        found.at[place].setdefault(name, made)
        found.names[n].append(name)
    return found


def _on_main(writers: Sequence[int], run: Run) -> int:
    return next(
        n
        for n in range(writers[0] - 1, -1, -1)
        if run.events[n].site.stream == MAIN
        and not run.events[n].site.in_loop
        and all(run.happens_before(n, writer) for writer in writers)
    )
