"""What every step of a model should read: its parts run in program order.

No plan has a say in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from dynaflow_dsl.bind.model import Binding, Instance
from tests.simulator.queues import Cell, Resource

# A part, its iteration, and the piece; None for all pieces.
Instant: TypeAlias = tuple[str, int, int | None]


class Own(NamedTuple):
    """Where a piece has what is not cut."""

    piece: int


class Brought(NamedTuple):
    """The weights that a part has brought for an iteration."""

    part: str
    iteration: int


class Given(NamedTuple):
    """What the caller has put there."""

    name: str
    row: int | None


class Made(NamedTuple):
    """What a part has put there."""

    part: str
    iteration: int
    output: int
    at: int | Own


Term: TypeAlias = Given | Made


class Model:
    """The parts in program order, over all pieces: what every step should read."""

    def __init__(
        self, binding: Binding, pieces: int, buffers: Mapping[str, int]
    ) -> None:
        self.binding, self.pieces, self.buffers = binding, pieces, buffers
        self.brought = {
            name: Brought(part.name, i)
            for part in binding.parts
            if part.fetches
            for i, instance in enumerate(part.instances)
            for name in instance.parameters
        }
        self.parts = {part.name: part for part in binding.everything}
        self.through = {p.name for p in binding.schedule.parts if p.via is not None}
        self.whole = {
            part.name
            for part in binding.everything
            if part not in binding.inner or part.name in binding.joined or pieces == 1
        }
        self.in_pieces = {
            value
            for part in binding.inner
            if part.name not in self.whole
            for instance in part.instances
            for value in instance.outputs
        }
        self.inputs = {
            name
            for part in binding.everything
            for instance in part.instances
            for name in (*instance.inputs, *(name for name, _ in instance.touched))
        } | set(binding.results)
        self.inputs -= {
            value
            for part in binding.everything
            for instance in part.instances
            for value in instance.outputs
        }
        self.terms: dict[tuple[str, int | None | Own], Term] = {}
        self.histories: dict[Cell, tuple[Instant, ...]] = {}
        self.reads: dict[Instant, tuple[Any, ...]] = {}
        for name in self.inputs:
            for row in self.rows(name):
                self.terms[name, row] = Given(name, row)
        for part, index in self.order():
            for piece in (None,) if part in self.whole else range(pieces):
                self._run((part, index, piece))

    def order(self) -> Iterator[tuple[str, int]]:
        binding = self.binding
        if binding.before is not None:
            yield binding.before.name, 0
        places = binding.gaps.places if binding.gaps is not None else ()
        gap = {place: n for n, place in enumerate(places)}
        for s, section in enumerate(binding.sections):
            for i in range(len(section.iterations)):
                if (s, i) in gap:
                    yield binding.gaps.part.name, gap[s, i]  # type: ignore[union-attr, index]
                for part in section.parts:
                    yield part.name, i
        if binding.after is not None:
            yield binding.after.name, 0

    def rows(self, value: str) -> tuple[int | None, ...]:
        """A tensor's rows when it holds all of a value."""
        if value in self.binding.axes:
            return tuple(range(self.pieces))
        return (None,)

    def rows_of(self, value: str, piece: int | None) -> tuple[int | None, ...]:
        """The rows that a step of a piece makes or reads of a value."""
        if piece is None:
            return self.rows(value)
        return (piece,) if value in self.binding.axes else (None,)

    def wanted(self, value: str, row: int | None, piece: int | None) -> Term:
        """What a step of a piece should read there."""
        if row is None and value in self.in_pieces:
            # Each piece has made its own; what is not cut is in the first as in all.
            return self.terms[value, Own(piece or 0)]
        return self.terms[value, row]

    def _run(self, instant: Instant) -> None:
        part, index, piece = instant
        instance = self.parts[part].instances[index]
        self.reads[instant] = tuple(
            self.wanted(value, row, piece)
            for value in instance.inputs
            for row in self.rows_of(value, piece)
        ) + tuple(self.histories.get(c, ()) for c in self.touched(instance, piece))
        for k, value in enumerate(instance.outputs):
            for row in self.rows_of(value, piece):
                own = row is None and value in self.in_pieces
                at = Own(piece or 0) if own else row
                self.terms[value, at] = made_by(instant, k, row)
        for cell in self.touched(instance, piece, written=True):
            self.histories[cell] = (*self.histories.get(cell, ()), instant)

    def resources(self, part: str, instance: Instance, stream: str) -> list[Cell]:
        """The process groups on which a step has its ranks meet.

        Kernels may have one for each stream; of those that nobody has read, nothing is
        known.
        """
        kernel = next((k for k in self.binding.kernels if k.part == part), None)
        if kernel is None and part in self.through:
            return []
        own = f":{stream}" if kernel is not None and kernel.by_stream else ""
        operations = self.parts[part].bodies[instance.body].operations
        groups = (
            [argument for argument in operation.arguments if isinstance(argument, str)]
            for operation in operations
            if operation.operator.startswith("_c10d_functional.")
        )
        return [(Resource(texts[-1] + own), None) for texts in groups if texts]

    def weights(self, part: str, index: int) -> dict[Cell, Brought]:
        """The buffers that a step fills or reads, with whose weights they hold then."""
        bound = self.parts[part]
        if bound.fetches:
            brought = [Brought(part, index)]
        else:
            names = bound.instances[index].parameters
            brought = [self.brought[name] for name in names if name in self.brought]
        return {
            (f"buffer {i % (self.buffers.get(name) or 1)} of {name}", None): Brought(
                name, i
            )
            for name, i in brought
        }

    def touched(
        self, instance: Instance, piece: int | None, *, written: bool = False
    ) -> list[Cell]:
        """The cells of inputs that a step touches, or only those that it writes."""
        return [
            (name, row)
            for name, writes in instance.touched
            if writes or not written
            for row in self.rows_of(name, piece)
        ]


def made_by(instant: Instant, output: int, row: int | None) -> Made:
    """What a step leaves behind, whatever it has read."""
    part, index, piece = instant
    return Made(part, index, output, row if row is not None else Own(piece or 0))
