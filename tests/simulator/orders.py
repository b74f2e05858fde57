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

from tests.simulator.queues import Cell, Item, Kernel, Recording

Kind: TypeAlias = Literal[
    "race",  # a step reads before what it reads is there
    "overwritten",  # memory is written while an earlier step still uses it
    "freed",  # memory is handed out while an earlier step still uses it
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


class Orders:
    """The orders of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.items = recording.items
        self.queues = list(recording.queues.values())
        self.kernels = {i.number: i.work for i in self.items if _is_kernel(i)}
        self.events = {
            item.work: (s, place)
            for s, queue in enumerate(self.queues)
            for place, item in enumerate(queue)
            if item.kind == "record"
        }
        # The kernel whose writing each kernel finds in each cell that it touches.
        self.expected: dict[int, dict[Cell, int]] = {}
        written: dict[Cell, int] = {}
        for number, kernel in self.kernels.items():
            cells = (*kernel.reads, *(cell for cell, _, _ in kernel.writes))
            self.expected[number] = {c: written[c] for c in cells if c in written}
            written.update((cell, number) for cell, _, _ in kernel.writes)
        # The last step of each queue: all of them have to be done at the end.
        self.last = [
            max((n for n, item in enumerate(q) if _is_step(item)), default=-1)
            for q in self.queues
        ]

    def all(self, limit: int) -> Explored | None:
        """All orders; None if queues can stand in more ways than `limit`.

        An order ends with its first fault, so memory is the same whenever the same
        kernels have run: each way the queues can stand is visited once.
        """
        explored = Explored()
        start = self.advance((0,) * len(self.queues))
        waiting, visited = [(start, dict[Cell, int]())], {start}
        while waiting:
            at, memory = waiting.pop()
            if len(visited) > limit:
                return None
            ready = self.ready(at)
            for n, s in enumerate(ready):
                for t in ready[n + 1 :]:
                    pair = (self.queues[s][at[s]].number, self.queues[t][at[t]].number)
                    explored.together.add(frozenset(pair))
            for s in ready:
                found = self.faults(at, s, memory)
                if found:
                    explored.faults.update(dict.fromkeys(found))
                    continue
                after = self.advance((*at[:s], at[s] + 1, *at[s + 1 :]))
                if after not in visited:
                    visited.add(after)
                    waiting.append((after, self.written(at, s, memory)))
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
            memory: dict[Cell, int] = {}
            while ready := self.ready(at):
                others = [s for s in ready if self.queues[s][at[s]].number != victim]
                s = (others or ready)[0]
                if found := self.faults(at, s, memory):
                    return found
                memory = self.written(at, s, memory)
                at = self.advance((*at[:s], at[s] + 1, *at[s + 1 :]))
        return []

    def ready(self, at: tuple[int, ...]) -> list[int]:
        """Queues whose head is a kernel."""
        return [
            s
            for s, queue in enumerate(self.queues)
            if at[s] < len(queue) and _is_kernel(queue[at[s]])
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
                    if _is_kernel(item):
                        break
                    if item.kind == "wait":
                        recorder, place = self.events[item.work]
                        if places[recorder] <= place:
                            break
                    places[s] += 1
                    moved = True
        return tuple(places)

    def written(
        self, at: tuple[int, ...], s: int, memory: dict[Cell, int]
    ) -> dict[Cell, int]:
        """Memory after the head of a queue has run."""
        number = self.queues[s][at[s]].number
        written = ((cell, number) for cell, _, _ in self.kernels[number].writes)
        return {**memory, **dict(written)}

    def faults(
        self, at: tuple[int, ...], s: int, memory: dict[Cell, int]
    ) -> list[Fault]:
        """What goes wrong when the head of a queue runs now."""
        number = self.queues[s][at[s]].number
        kernel, expected = self.kernels[number], self.expected[number]
        found = [
            Fault(
                self.kind(number, cell, memory.get(cell)),
                f"{kernel.label}: {_name(cell)}",
            )
            for cell in dict.fromkeys(
                (*kernel.reads, *(cell for cell, _, _ in kernel.writes))
            )
            if memory.get(cell) != expected.get(cell)
            and self._matters(number, cell, memory.get(cell))
        ]
        if kernel.role == "end" and any(
            place <= last for place, last in zip(at, self.last, strict=True)
        ):
            found.append(Fault("unjoined", f"{kernel.label}: work is left"))
        return found

    def _matters(self, number: int, cell: Cell, found: int | None) -> bool:
        """A write that nobody has read yet must only not come after a later one."""
        return cell in self.kernels[number].reads or (found or 0) > number

    def kind(self, number: int, cell: Cell, found: int | None) -> Kind:
        """What it means that a kernel finds another kernel's writing in a cell."""
        role = self.kernels[number].role
        writer = self.kernels[found].role if found is not None else None
        wanted = self.expected[number].get(cell)
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
        first = wanted is not None and self.kernels[wanted].role == "start"
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


def _is_kernel(item: Item) -> bool:
    return item.kind == "run"


def _is_step(item: Item) -> bool:
    return isinstance(item.work, Kernel) and item.work.role == "step"


def _name(cell: Cell) -> str:
    storage, row = cell
    return f"{storage}" if row is None else f"{storage}[{row}]"
