"""Every order in which streams may work off their queues.

Nothing here reasons about order: heads of queues are run one after the other, in all
ways that records and waits leave open. A kernel must find in memory what the kernels
before it in the order of issue have left there; what it finds instead tells what went
wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from tests.simulator.queues import Cell, Item, Kernel, Recording, Resource

Kind: TypeAlias = Literal[
    "race",  # a step reads before what it reads is there
    "overwritten",  # memory is written while an earlier step still uses it
    "freed",  # memory is handed out while an earlier step still uses it
    "shared",  # two steps use at once what one may use at a time
    "unforked",  # a step runs before the caller's inputs are ready
    "unjoined",  # work is left when the step returns
    "output",  # a result's memory is handed out before the caller has read it
]


class Fault(NamedTuple):
    """What some order shows."""

    kind: str
    text: str


@dataclass(slots=True)
class Explored:
    """What all orders showed; `together` are pairs of items that may run at once."""

    faults: dict[Fault, None] = field(default_factory=dict)
    together: set[frozenset[int]] = field(default_factory=set)


class Touched(NamedTuple):
    """A cell that a kernel touches: whose writing it expects there, and all writers
    with their places in queues, the last one in the order of issue first."""

    cell: Cell
    reads: bool
    expected: int | None
    writers: list[tuple[int, int, int]]


class Orders:
    """The orders of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.queues = list(recording.queues.values())
        self.kernels = dict(recording.kernels())
        places = {
            item.number: (s, place)
            for s, queue in enumerate(self.queues)
            for place, item in enumerate(queue)
        }
        self.events = {
            item.work: places[item.number]
            for item in recording.items
            if item.kind == "record"
        }
        writers: dict[Cell, list[tuple[int, int, int]]] = {}
        self.touched: dict[int, list[Touched]] = {}
        for number, kernel in self.kernels.items():
            written = {cell: False for cell, _, _ in kernel.writes}
            self.touched[number] = [
                Touched(
                    cell, reads, _last(writers.get(cell)), writers.setdefault(cell, [])
                )
                for cell, reads in {
                    **written,
                    **dict.fromkeys(kernel.reads, True),
                }.items()
            ]
            for cell in written:
                writers[cell].insert(0, (number, *places[number]))
        # The last step of each queue: all of them have to be done at the end.
        self.last = [
            max((n for n, item in enumerate(q) if _is_step(item)), default=-1)
            for q in self.queues
        ]

    def all(self, limit: int) -> Explored | None:
        """All orders; None if queues can stand in more ways than `limit`.

        What goes wrong is noted and mended: every kernel is tried against memory as the
        order of issue leaves it, so far as other kernels have run. One fault is then
        not the cause of another, and each way the queues can stand is visited once.
        """
        explored = Explored()
        start = self.advance((0,) * len(self.queues))
        waiting, visited = [start], {start}
        while waiting:
            at = waiting.pop()
            if len(visited) > limit:
                return None
            ready = self.ready(at)
            for n, s in enumerate(ready):
                for t in ready[n + 1 :]:
                    pair = (self.queues[s][at[s]].number, self.queues[t][at[t]].number)
                    explored.together.add(frozenset(pair))
            for s in ready:
                explored.faults.update(dict.fromkeys(self.faults(at, s)))
                after = self.advance((*at[:s], at[s] + 1, *at[s + 1 :]))
                if after not in visited:
                    visited.add(after)
                    waiting.append(after)
        return explored

    def starving(self) -> list[Fault]:
        """For each kernel, everything else as far as it gets without it.

        Two conflicting kernels that nothing orders swap places when the one that is
        issued first is starved. Reuse of memory is never issued first: nothing has a
        name for that memory afterwards. Stops at the first kernel that shows a fault.
        """
        for victim, kernel in self.kernels.items():
            if kernel.role == "reuse":
                continue
            at = self.advance((0,) * len(self.queues))
            while ready := self.ready(at):
                others = [s for s in ready if self.queues[s][at[s]].number != victim]
                s = (others or ready)[0]
                if found := self.faults(at, s):
                    return found
                at = self.advance((*at[:s], at[s] + 1, *at[s + 1 :]))
        return []

    def ready(self, at: tuple[int, ...]) -> list[int]:
        """Queues whose head is a kernel."""
        return [
            s
            for s, queue in enumerate(self.queues)
            if at[s] < len(queue) and queue[at[s]].kind == "run"
        ]

    def advance(self, at: tuple[int, ...]) -> tuple[int, ...]:
        """Past all records, and past the waits for them: no order gains by delaying."""
        places = list(at)
        moved = True
        while moved:
            moved = False
            for s, queue in enumerate(self.queues):
                while places[s] < len(queue):
                    item = queue[places[s]]
                    if item.kind == "run":
                        break
                    if item.kind == "wait":
                        recorder, place = self.events[item.work]
                        if places[recorder] <= place:
                            break
                    places[s] += 1
                    moved = True
        return tuple(places)

    def faults(self, at: tuple[int, ...], s: int) -> list[Fault]:
        """What goes wrong when the head of a queue runs now."""
        number = self.queues[s][at[s]].number
        kernel = self.kernels[number]
        found = []
        for touched in self.touched[number]:
            here = next((n for n, t, p in touched.writers if at[t] > p), None)
            # Who only writes must not come after a later writer.
            wrong = here != touched.expected if touched.reads else (here or 0) > number
            if wrong:
                kind = self.kind(number, touched, here)
                found.append(Fault(kind, f"{kernel.label}: {_name(touched.cell)}"))
        if kernel.role == "end" and any(
            place <= last for place, last in zip(at, self.last, strict=True)
        ):
            found.append(Fault("unjoined", f"{kernel.label}: work is left"))
        return found

    def kind(self, number: int, touched: Touched, found: int | None) -> Kind:
        """What it means that a kernel finds another kernel's writing in a cell."""
        role = self.kernels[number].role
        if isinstance(touched.cell[0], Resource):
            return "shared"
        writer = self.kernels[found].role if found is not None else None
        if role == "end":
            return "output" if writer == "reuse" else "unjoined"
        if role == "next" or writer == "next":
            return "unjoined"
        if writer == "reuse":
            return "freed"
        if role == "start":
            return "unforked"
        if found is not None and found > number:
            return "overwritten"
        expected = touched.expected
        first = expected is not None and self.kernels[expected].role == "start"
        return "unforked" if first else "race"


def contents(recording: Recording) -> dict[int, tuple[object, ...]]:
    """What every kernel reads in the order of issue, by the number of its item."""
    memory: dict[Cell, object] = {}
    seen: dict[int, tuple[object, ...]] = {}
    for item in recording.items:
        if isinstance(item.work, Kernel):
            seen[item.number] = tuple(memory.get(cell) for cell in item.work.reads)
            made = []
            for cell, token, sources in item.work.writes:
                read = tuple(memory.get(source) for source in sources)
                # A copy holds what it copies.
                made.append((cell, read[0] if token == ("same",) else (token, read)))
            memory.update(_interned(made))
    return seen


def _interned(made: Iterable[tuple[Cell, object]]) -> Iterable[tuple[Cell, object]]:
    # Terms are as deep as the model: their hashes stand for them.
    return (
        (cell, content if isinstance(content, int) else hash(content))
        for cell, content in made
    )


def _last(writers: list[tuple[int, int, int]] | None) -> int | None:
    return writers[0][0] if writers else None


def _is_step(item: Item) -> bool:
    return isinstance(item.work, Kernel) and item.work.role == "step"


def _name(cell: Cell) -> str:
    storage, row = cell
    return f"{storage}" if row is None else f"{storage}[{row}]"
