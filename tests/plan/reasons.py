"""Why a timeline has to be refused, found from its windows and the data edges alone.

The reasons are those of the language: a step before what it reads, a result replaced
before it is read, and a window whose steps data and stream order leave no freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.plan.layered import Layered


@dataclass(frozen=True, slots=True)
class Step:
    part: str
    piece: int
    previous: bool
    stream: str


# A window is a list of runs, a run a list of steps.
Windows = Sequence[Sequence[Sequence[Step]]]
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Issued:
    """A step when it is issued: the window counts through the whole run."""

    key: Key
    window: int
    run: int
    stream: str


def issued(windows: Windows, layers: int) -> list[Issued]:
    """Everything in the order of the text, over all layers."""
    found: list[Issued] = []
    number = 0
    staggered = any(s.previous for w in windows for run in w for s in run)
    # With steps of the layer before, one more pass holds what is left of the last.
    for i in range(layers + 1 if staggered else layers):
        for window in windows:
            for r, run in enumerate(window):
                for step in run:
                    layer = i - 1 if step.previous else i
                    if 0 <= layer < layers:
                        key = (step.part, layer, step.piece)
                        found.append(Issued(key, number, r, step.stream))
            number += 1
    return found


def data_needs(model: Layered, key: Key) -> list[Key]:
    """Steps whose results a step reads."""
    part, layer, piece = key
    needs = []
    for read in model.shape(part).reads:
        if read.part is not None and (layer > 0 or not read.carried):
            needs.append((read.part, layer - int(read.carried), piece))
    return needs


def memory_needs(model: Layered, pieces: int) -> dict[Key, list[Key]]:
    """Steps that touch the same cache before a step, where one of the two writes."""
    needs: dict[Key, list[Key]] = {}
    for piece in range(pieces):
        accesses = [
            (shape.cache.lower(), shape.cache in ("R", "W"), (shape.name, i, piece))
            for i in range(model.layers)
            for shape in model.shapes
            if shape.cache
        ]
        for n, (kind, shared, key) in enumerate(accesses):
            for other_kind, other_shared, other in accesses[:n]:
                same = shared == other_shared and (shared or key[1] == other[1])
                if same and "w" in (kind, other_kind):
                    needs.setdefault(key, []).append(other)
    return needs


def reasons(model: Layered, windows: Windows, pieces: int) -> set[str]:
    """`early`, `replaced` and `ordered`; nothing when the timeline is fine."""
    events = issued(windows, model.layers)
    place = {event.key: event for event in events}
    memory = memory_needs(model, pieces)
    found: set[str] = set()
    edges: dict[Key, list[Key]] = {}
    last: dict[str, Key] = {}
    for event in events:
        edges[event.key] = [*data_needs(model, event.key), *memory.get(event.key, ())]
        for key in edges[event.key]:
            if not _earlier(place[key], event, events):
                found.add("early")
        if event.stream in last:
            edges[event.key].append(last[event.stream])
        last[event.stream] = event.key
    if _replaced(model, events, place):
        found.add("replaced")
    if found:
        return found
    before: dict[Key, frozenset[Key]] = {}

    def ancestors(key: Key) -> frozenset[Key]:
        if key not in before:
            before[key] = frozenset().union(
                *(ancestors(other) | {other} for other in edges[key])
            )
        return before[key]

    for event in events:
        ancestors(event.key)
    for n, event in enumerate(events):
        for other in events[n + 1 :]:
            claimed = event.window == other.window and event.run != other.run
            ordered = event.key in before[other.key] or other.key in before[event.key]
            if claimed and ordered:
                found.add("ordered")
    return found


def _earlier(maker: Issued, reader: Issued, events: Sequence[Issued]) -> bool:
    if maker.window != reader.window:
        return maker.window < reader.window
    return maker.run == reader.run and events.index(maker) < events.index(reader)


def _replaced(model: Layered, events: list[Issued], place: dict[Key, Issued]) -> bool:
    """Whether some result's name goes to the next layer's result before a read."""
    first: dict[int, set[tuple[int, int]]] = {}
    for event in events:
        part, layer, piece = event.key
        for read in model.shape(part).reads:
            if read.part is None or (read.carried and model.layers == 1):
                # A single layer carries nothing: it reads what it is given.
                continue
            thief = place.get((read.part, layer + 1 - int(read.carried), piece))
            if thief is None or thief.key == event.key:
                continue
            if thief.window < event.window:
                return True
            if thief.window == event.window:
                if thief.run == event.run:
                    if events.index(thief) < events.index(event):
                        return True
                else:
                    first.setdefault(event.window, set()).add((event.run, thief.run))
    return any(_cyclic(pairs) for pairs in first.values())


def _cyclic(pairs: set[tuple[int, int]]) -> bool:
    """Whether no order of runs puts every first before its second."""
    runs = {run for pair in pairs for run in pair}
    while runs:
        free = [r for r in runs if not any(b == r and a in runs for a, b in pairs)]
        if not free:
            return True
        runs -= set(free)
    return False
