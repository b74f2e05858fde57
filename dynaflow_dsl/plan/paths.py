"""Why one step comes after another: the shortest chain of reasons, in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.plan.clocks import Run
from dynaflow_dsl.plan.dependences import Need


class Link(NamedTuple):
    """Event `later` comes directly after event `earlier`, for a reason."""

    earlier: int
    later: int
    reason: str


def chain(
    run: Run, needs: Sequence[Sequence[Need]], earlier: int, later: int
) -> list[Link]:
    """The shortest chain of links from one event to another; empty if there is none."""
    before = _previous_on_stream(run)
    towards: dict[int, Link] = {}
    queue = deque([later])
    while queue:
        here = queue.popleft()
        for link in _links(here, run, needs, before):
            if link.earlier < earlier or link.earlier in towards:
                continue
            towards[link.earlier] = link
            if link.earlier == earlier:
                return list(_followed(earlier, later, towards))
            queue.append(link.earlier)
    return []


def in_words(run: Run, links: Sequence[Link]) -> str:
    """`attn[0] → mlp[0] (reads attn_0) → attn[1] (next on side)`."""
    first = run.events[links[0].earlier].site.label
    steps = (f"{run.events[x.later].site.label} ({x.reason})" for x in links)
    return " → ".join([first, *steps])


def _followed(earlier: int, later: int, towards: dict[int, Link]) -> Iterator[Link]:
    here = earlier
    while here != later:
        yield towards[here]
        here = towards[here].later


def _links(
    here: int,
    run: Run,
    needs: Sequence[Sequence[Need]],
    before: Sequence[int | None],
) -> Iterator[Link]:
    """Data first, since it says more than the order of a stream."""
    for need in sorted(needs[here], key=lambda need: not need.variable):
        maker = run.number.get(need.step)
        if maker is None or maker >= here:
            continue
        if need.variable:
            reason = f"reads {need.read}"
        elif need.after:
            reason = f"after {need.after}"
        elif need.step.part in (BEFORE, AFTER):
            continue
        else:
            reason = f"touches {need.memory}"
        yield Link(maker, here, reason)
    previous = before[here]
    if previous is not None:
        yield Link(previous, here, f"next on {run.events[here].site.stream}")


def _previous_on_stream(run: Run) -> list[int | None]:
    last: dict[str, int] = {}
    found: list[int | None] = []
    for n, event in enumerate(run.events):
        found.append(last.get(event.site.stream))
        last[event.site.stream] = n
    return found
