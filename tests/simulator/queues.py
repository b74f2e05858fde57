"""What a step gives to its streams: queues of kernels, records and waits.

Both front ends end here: a plan's statements (`program`) and the text of a generated
module (`recording`). Orders are explored over queues alone (`orders`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias


class Resource(NamedTuple):
    """What one step may use at a time: a process group, by its name."""

    name: str


# A row of a storage; row None is the content of a tensor without rows. A resource is a
# cell that every user reads and writes.
Cell: TypeAlias = tuple[Hashable, int | None]

# `start` and `end` are the caller's, on main: inputs are ready, results are read.
# `next` overwrites what the caller gave, for the next step. `reuse` is the allocator
# that hands memory out again.
Role: TypeAlias = Literal["start", "step", "end", "next", "reuse"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Reads cells, then writes cells with what its tokens and their sources say."""

    label: str
    reads: tuple[Cell, ...]
    writes: tuple[tuple[Cell, tuple[Hashable, ...], tuple[Cell, ...]], ...]
    role: Role = "step"


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a stream's queue; `number` is its place in the order of issue.

    The work of a record and of a wait is the number of the event.
    """

    number: int
    stream: str
    work: Kernel | int
    kind: Literal["run", "record", "wait"]


@dataclass(slots=True)
class Recording:
    """Everything that one step gave to the streams; `items` are in order of issue."""

    streams: tuple[str, ...]
    items: list[Item]
    error: str = ""

    @property
    def queues(self) -> dict[str, list[Item]]:
        """The items of each stream."""
        queues: dict[str, list[Item]] = {stream: [] for stream in self.streams}
        for item in self.items:
            queues[item.stream].append(item)
        return queues

    def kernels(self) -> Iterator[tuple[int, Kernel]]:
        """All kernels with their numbers, in order of issue."""
        for item in self.items:
            if isinstance(item.work, Kernel):
                yield item.number, item.work
