"""Stand-ins for streams, events and tensors that write down what they are told.

A tensor is a view of rows of a storage; a row is a token that says how it was computed.
What a stream is given (kernels, records, waits) goes into its queue, and memory whose
last name goes is overwritten by the stream that made it, as the allocator may let it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from tests.simulator.queues import Cell, Item, Kernel


class Refused(Exception):
    """The text does something that no real tensor would allow."""


class Recorder:
    def __init__(self, streams: Sequence[str]) -> None:
        self.streams = tuple(streams)
        self.items: list[Item] = []
        self.current = ["main"]
        self.storages, self.events = count(), count()
        self.active = True

    def put(
        self, stream: str, kind: Literal["run", "record", "wait"], work: Kernel | int
    ) -> None:
        self.items.append(Item(len(self.items), stream, work, kind))

    def launch(self, kernel: Kernel) -> None:
        self.put(self.current[-1], "run", kernel)

    def reuse(self, stream: str, cells: tuple[Cell, ...]) -> None:
        """The allocator hands the memory out again on the stream that made it."""
        if self.active:
            writes = tuple((cell, ("reused", cell), ()) for cell in cells)
            self.put(stream, "run", Kernel("reuse", (), writes, "reuse"))


class Storage:
    def __init__(
        self, recorder: Recorder, rows: tuple[int | None, ...], *, owned: bool
    ) -> None:
        self.number = next(recorder.storages)
        self.recorder, self.stream, self.owned = recorder, recorder.current[-1], owned
        self.cells = tuple((self.number, row) for row in rows)

    def __del__(self) -> None:
        if self.owned:
            self.recorder.reuse(self.stream, self.cells)


SIZE = "size"


class Shape:
    def __getitem__(self, axis: int) -> str:
        return SIZE


@dataclass(frozen=True, slots=True)
class Piece:
    number: int


class Tensor:
    """A view of some rows of a storage."""

    def __init__(self, storage: Storage, rows: tuple[int | None, ...]) -> None:
        self.storage, self.rows, self.shape = storage, rows, Shape()

    def __getitem__(self, piece: Piece) -> Tensor:
        if not isinstance(piece, Piece) or piece.number not in self.rows:
            raise Refused(f"no piece {piece} in rows {self.rows}")
        return Tensor(self.storage, (piece.number,))

    def cell(self, row: int | None) -> Cell:
        return (self.storage.number, row if row in self.rows else None)

    def clone(self) -> Tensor:
        return compute(self.storage.recorder, "clone", None, [self], 1)[0]


def compute(
    recorder: Recorder,
    part: str,
    layer: int | None,
    operands: Sequence[Any],
    results: int,
    shared: frozenset[int] = frozenset(),
    written: Sequence[int] = (),
    weights: tuple[Cell, ...] = (),
    into: Mapping[int, Tensor] | None = None,
) -> list[Tensor]:
    """One kernel: every row of a result depends on that row of the operands, and on
    what the buffers of its weights hold. What goes `into` a tensor is written there."""
    into = into or {}
    for operand in (*operands, *into.values()):
        if not isinstance(operand, Tensor):
            raise Refused(f"{part} is given {operand!r}")
    given = (*operands, *into.values())
    cut = {operand.rows for operand in given if operand.rows != (None,)}
    if len(cut) > 1:
        raise Refused(f"{part} mixes rows {sorted(cut)}")
    rows = cut.pop() if cut else (None,)
    name = part if layer is None else f"{part} {layer}"

    def of_row(row: int | None) -> tuple[Cell, ...]:
        return (*(operand.cell(row) for operand in operands), *weights)

    made = {
        k: into[k]
        if k in into
        else whole(Storage(recorder, (None,) if k in shared else rows, owned=True))
        for k in range(results)
    }
    writes: list[tuple[Cell, tuple[Any, ...], tuple[Cell, ...]]] = []
    for k, tensor in made.items():
        for cell in map(tensor.cell, tensor.rows):
            first = rows[0] if cell[1] is None else cell[1]
            # A copy holds what it copies.
            token = ("same",) if part == "clone" else (part, layer, k)
            writes.append((cell, token, of_row(first)))
    for position in written:
        for row in operands[position].rows:
            written_in_place = (part, layer, "in place", position)
            cell = operands[position].cell(row)
            writes.append((cell, written_in_place, of_row(row)))
    reads = tuple(cell for row in rows for cell in of_row(row))
    recorder.launch(Kernel(name, reads, tuple(writes)))
    return [tensor for k, tensor in made.items() if k not in into]


def whole(storage: Storage) -> Tensor:
    return Tensor(storage, tuple(row for _, row in storage.cells))


def empty(recorder: Recorder, pieces: int) -> Callable[..., Tensor]:
    """`torch.empty`: what was in the memory is still used by earlier work there."""

    def run(shape: Sequence[int | str], **options: object) -> Tensor:
        cut = pieces > 1 and shape[0] == SIZE
        rows = tuple(range(pieces)) if cut else (None,)
        storage = Storage(recorder, rows, owned=True)
        writes = tuple((cell, ("empty", cell), ()) for cell in storage.cells)
        recorder.launch(Kernel("empty", (), writes))
        return whole(storage)

    return run


def cat(recorder: Recorder) -> Callable[..., Tensor]:
    def run(pieces: Sequence[Tensor], axis: int = 0) -> Tensor:
        rows = tuple(range(len(pieces)))
        storage = Storage(recorder, rows, owned=True)
        cells = [cell for p in pieces for cell in (p.cell(row) for row in p.rows)]
        if len(cells) != len(rows):
            raise Refused("pieces of more than a row are joined")
        writes = [
            (to, ("same",), (source,))
            for to, source in zip(storage.cells, cells, strict=True)
        ]
        recorder.launch(Kernel("cat", tuple(cells), tuple(writes)))
        return Tensor(storage, rows)

    return run


@dataclass(slots=True)
class Stream:
    name: str
    recorder: Recorder

    def __enter__(self) -> None:
        self.recorder.current.append(self.name)

    def __exit__(self, *_: object) -> None:
        self.recorder.current.pop()

    def record(self) -> int:
        event = next(self.recorder.events)
        self.recorder.put(self.name, "record", event)
        return event

    def wait(self, event: int) -> None:
        self.recorder.put(self.name, "wait", event)


@dataclass(slots=True)
class Streams:
    made: list[Stream]

    def __iter__(self) -> Any:
        return iter(self.made)

    def join(self) -> None:
        main, *others = self.made
        for stream in others:
            main.wait(stream.record())
        done = main.record()
        for stream in others:
            stream.wait(done)
