"""Plans of drawn models, right as they are made, with spare waits and early frees.

Nothing of the compiler's planner is used. A step is issued at any place that its reads
and its memory allow; it waits for what its stream does not know yet; a name is dropped
at the first place where its maker's stream knows all readers, or is left to the end.
Who knows what is a set of steps for each stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding
from dynaflow_dsl.graph.model import Size, TensorType
from dynaflow_dsl.plan.model import (
    Allocate,
    Block,
    Call,
    InputOperand,
    Join,
    Layer,
    Merge,
    Operand,
    PieceOf,
    Program,
    Record,
    Return,
    Slices,
    Statement,
    Straight,
    Target,
    Variable,
    Wait,
)
from tests.simulator.drafts import Draft, with_claims
from tests.simulator.lifetimes import Line, awaited, with_frees
from tests.simulator.random_models import (
    Drawing,
    Drawn,
    bound,
    draw,
    memory,
    place,
)


class Unit(NamedTuple):
    """A step: one piece of a part in a layer, None for all pieces."""

    part: str
    layer: int
    piece: int | None


@dataclass(slots=True)
class Written:
    """Statements as they are written, by layer, and what streams know after each."""

    statements: list[Line] = field(default_factory=list)
    known: dict[str, set[Unit]] = field(default_factory=dict)
    events: dict[str, set[Unit]] = field(default_factory=dict)
    streams: dict[Unit, str] = field(default_factory=dict)


START = Unit("start", 0, None)

# What has rows for all pieces.
ROWS = TensorType((Size(1, ("batch",)), Size(4)), (Size(4), Size(1)), "float32")


@dataclass(slots=True)
class Writer:
    """Writes one plan of a drawing."""

    random: Random
    drawing: Drawing
    binding: Binding
    parts: dict[str, Drawn]
    shared_names: bool
    written: Written = field(default_factory=Written)
    touched: dict[tuple[str, int], list[tuple[Unit, bool]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    layer: int = 0
    # Results that go to rows of one tensor, each with the stream that makes it: main,
    # before the layers, or that of the first step that writes.
    rows: dict[tuple[str, int], bool] = field(default_factory=dict)
    begun: dict[str, Unit] = field(default_factory=dict)

    def write(self) -> list[Line]:
        drawing, written = self.drawing, self.written
        self.rows = dict(self._in_rows())
        written.known = {stream: set() for stream in drawing.streams}
        written.known["main"].add(START)
        written.streams[START] = "main"
        self._before()
        for unit in self._issued():
            self.layer = unit.layer
            self._step(unit)
        self.layer = drawing.layers
        self._after()
        return written.statements

    def _put(self, *statements: Statement) -> None:
        self.written.statements += [(self.layer, s) for s in statements]

    # Results in rows.

    def _in_rows(self) -> Iterator[tuple[tuple[str, int], bool]]:
        """Some of the results of which nobody reads a piece alone."""
        for part in self.drawing.parts:
            for k, cut in enumerate(part.outputs):
                readers = [
                    reader
                    for reader in self.drawing.parts
                    if (part.name, k) in {read[:2] for read in reader.reads}
                ]
                apart = not self._whole(part) and cut
                in_rows = apart and all(map(self._whole, readers))
                if in_rows and self.random.random() < 0.7:
                    early = not self.shared_names and self.random.random() < 0.4
                    yield (part.name, k), early

    def _rows_of(self, part: str, layer: int, output: int) -> str:
        return f"{self.name(part, layer, output, None)}_rows"

    def _empty(self, name: str, stream: str) -> None:
        self._put(Allocate(name, stream, ROWS))

    def _targets(self, unit: Unit) -> list[tuple[int, PieceOf]]:
        """Where a step writes results, each with what makes room for it."""
        found = []
        for k in range(len(self.parts[unit.part].outputs)):
            if (unit.part, k) in self.rows:
                name = self._rows_of(unit.part, unit.layer, k)
                assert unit.piece is not None
                found.append((k, PieceOf(name, unit.piece)))
        return found

    # Names.

    def name(self, part: str, layer: int, output: int, piece: int | None) -> str:
        names = f"{part}{output}"
        if not self.shared_names:
            names += f"_of_{layer}"
        return names if piece is None else f"{names}_{piece}"

    def event(self, unit: Unit) -> str:
        return f"{self.name(unit.part, unit.layer, 0, unit.piece)}_done"

    # Order.

    def units(self, layer: int) -> list[Unit]:
        return [
            Unit(part.name, layer, piece)
            for part in self.drawing.parts
            for piece in ((None,) if self._whole(part) else range(self.drawing.pieces))
        ]

    def _whole(self, part: Drawn) -> bool:
        return part.whole or self.drawing.pieces == 1

    def _issued(self) -> list[Unit]:
        """All steps: layer by layer in one order, or mixed across layers."""
        layers = range(self.drawing.layers)
        if self.shared_names:
            places = {u[::2]: self.random.random() for u in self.units(0)}
            return [u for i in layers for u in self._ordered(self.units(i), places)]
        everything = [unit for i in layers for unit in self.units(i)]
        weights = {unit: self.random.random() for unit in everything}
        return self._ordered(everything, weights)

    def _ordered(self, units: list[Unit], places: dict) -> list[Unit]:  # type: ignore[type-arg]
        """Any order that keeps the model's own where steps need each other."""
        left, found = list(units), []
        while left:
            free = [
                unit
                for n, unit in enumerate(left)
                if not any(self._before_in_model(u, unit) for u in left[:n])
            ]
            chosen = min(free, key=lambda u: places.get(u, places.get(u[::2], 0.0)))
            left.remove(chosen)
            found.append(chosen)
        return found

    def _before_in_model(self, earlier: Unit, later: Unit) -> bool:
        if self._conflict(earlier, later):
            return True
        if not self._meet(earlier, later):
            return False
        if self.shared_names and (later.part, True) in {
            (part, carried) for part, _, carried in self.parts[earlier.part].reads
        }:
            # It reads what the other one is about to replace.
            return True
        made = {
            (part, later.layer - carried)
            for part, _, carried in self.parts[later.part].reads
        }
        return earlier[:2] in made

    @staticmethod
    def _meet(one: Unit, other: Unit) -> bool:
        return None in (one.piece, other.piece) or one.piece == other.piece

    def _conflict(self, one: Unit, other: Unit) -> bool:
        """Whether both touch one memory and one writes it; pieces of a part may."""
        for name, writes in self.parts[one.part].touches:
            for again, wrote in self.parts[other.part].touches:
                same = memory(name, one.layer) == memory(again, other.layer)
                meet = self._meet(one, other) if name == "keys" else True
                if same and (writes or wrote) and meet and one[:2] != other[:2]:
                    return True
        return False

    # Steps.

    def _before(self) -> None:
        for (part, k), early in self.rows.items():
            if early:
                for layer in range(self.drawing.layers):
                    self._empty(self._rows_of(part, layer, k), "main")
        self._put(Record("start", "main"))
        self.written.events["start"] = set(self.written.known["main"])
        if not self.drawing.embed:
            return
        operand = InputOperand("x")
        unit = Unit(BEFORE, 0, None)
        self._run(unit, "main", (operand,), ("h",), BEFORE)
        if self.drawing.pieces > 1 and self.random.random() < 0.7:
            pieces = tuple(f"h_{k}" for k in range(self.drawing.pieces))
            self._put(Slices(pieces, Variable("h")))

    def _step(self, unit: Unit) -> None:
        part = self.parts[unit.part]
        stream = part.streams[unit.piece or 0]
        needs = [START]
        operands: list[Operand] = []
        gathered: list[str] = []
        for read in part.reads:
            operand, makers = self._operand(read, unit)
            needs += makers
            if isinstance(operand, tuple):
                gathered.append(f"{unit.part}_all{len(gathered)}")
                self._wait(stream, needs, unit)
                self._put(Merge(gathered[-1], operand, 0, stream))
                operand = Variable(gathered[-1])
            operands.append(operand)
        for name, writes in part.touches:
            if name != "ring":
                operands.append(self._memory(name, unit))
            needs += self._earlier(name, unit, writes)
        if part.group:
            needs += [user for user, _ in self.touched[part.group, 0]]
            self.touched[part.group, 0].append((unit, True))
        targets = self._targets(unit)
        first = f"{unit.part} of {unit.layer}"
        if targets and first in self.begun:
            needs.append(self.begun[first])
        self._wait(stream, needs, unit)
        if targets and first not in self.begun:
            self.begun[first] = unit
            for k, where in targets:
                if not self.rows[unit.part, k]:
                    self._empty(where.name, stream)
        elsewhere = {k for k, _ in targets}
        results = tuple(
            self.name(unit.part, unit.layer, k, unit.piece)
            for k in range(len(part.outputs))
            if k not in elsewhere
        )
        into = tuple(Target(k, where) for k, where in targets)
        label = f"{unit.part}[{unit.piece}]"
        self._run(unit, stream, tuple(operands), results, label, into)

    def _run(
        self,
        unit: Unit,
        stream: str,
        operands: tuple[Operand, ...],
        results: tuple[str, ...],
        label: str,
        into: tuple[Target, ...] = (),
    ) -> None:
        written = self.written
        written.known[stream].add(unit)
        written.streams[unit] = stream
        where = place(20 + len(written.streams))
        layer = Layer(unit.layer)
        step = Call(
            unit.part, layer, unit.piece, stream, operands, results, label, where, into
        )
        self._put(step)
        self._put(Record(self.event(unit), stream))
        written.events[self.event(unit)] = set(written.known[stream])

    def _wait(self, stream: str, needs: Sequence[Unit], unit: Unit) -> None:
        """Wait for what the stream does not know, and now and then for what it does."""
        for need in dict.fromkeys(reversed(needs)):
            known = need in self.written.known[stream]
            if known and self.random.random() > 0.02:
                continue
            event = "start" if need is START else self.event(need)
            if event not in self.written.events:
                continue
            if self.written.streams.get(need) == stream:
                continue
            self._put(Wait(stream, event, f"{unit.part}", ()))
            self.written.known[stream] |= self.written.events[event]

    def _earlier(self, name: str, unit: Unit, writes: bool) -> list[Unit]:
        """Steps that have touched the memory, where they or this one write it."""
        place_of = memory(name, unit.layer)
        pieces = range(self.drawing.pieces)
        apart = name == "keys" and unit.piece is not None
        needs = []
        for piece in (unit.piece,) if apart else pieces:
            history = self.touched[place_of, piece or 0]
            needs += [u for u, wrote in history if (writes or wrote) and u != unit]
            history.append((unit, writes))
        return needs

    # Operands.

    def _operand(
        self, read: tuple[str, int, bool], unit: Unit
    ) -> tuple[Operand | tuple[str, ...], list[Unit]]:
        part, output, carried = read
        piece = unit.piece
        if part == "m":
            return InputOperand("m"), []
        if part == "x" or (carried and unit.layer == 0):
            if part != "x" and self.drawing.embed:
                return self._embedded(piece), [Unit(BEFORE, 0, None)]
            return InputOperand("x", piece=piece), []
        maker, layer = self.parts[part], unit.layer - carried
        if self._whole(maker):
            name = self.name(part, layer, output, None)
            cut = maker.outputs[output] and piece is not None
            operand = PieceOf(name, piece or 0) if cut else Variable(name)
            return operand, [Unit(part, layer, None)]
        pieces = range(self.drawing.pieces) if piece is None else (piece,)
        makers = [Unit(part, layer, k) for k in pieces]
        if (part, output) in self.rows:
            return Variable(self._rows_of(part, layer, output)), makers
        names = tuple(self.name(part, layer, output, k) for k in pieces)
        if piece is None and maker.outputs[output]:
            return names, makers
        return Variable(names[0]), makers[:1]

    def _embedded(self, piece: int | None) -> Operand:
        if piece is None:
            return Variable("h")
        cut = any(isinstance(s, Slices) for _, s in self.written.statements)
        return Variable(f"h_{piece}") if cut else PieceOf("h", piece)

    def _memory(self, name: str, unit: Unit) -> Operand:
        match name:
            case "keys":
                return InputOperand("keys", Layer(unit.layer), piece=unit.piece)
            case _:
                return InputOperand(name)

    def _after(self) -> None:
        """What runs on main after the layers, and the results."""
        drawing, last = self.drawing, self.drawing.layers - 1
        end = Unit(AFTER, 0, None)
        returned = [self._whole_value(part, last, k, end) for part, k in drawing.head]
        if drawing.head:
            self._run(end, "main", tuple(returned), ("logits",), AFTER)
            returned = [Variable("logits")]
        else:
            returned = []
        for part, k in drawing.results:
            read = self._whole_value(part, last, k, end, copied=True)
            returned.append(read)
        if len(drawing.streams) > 1:
            self._put(Join())
        self._put(Return(tuple(returned)))

    def _whole_value(
        self, part: str, layer: int, output: int, unit: Unit, *, copied: bool = False
    ) -> Operand:
        """All of a value on main; what is returned has to be made there."""
        read, makers = self._operand((part, output, False), Unit(AFTER, layer, None))
        self._wait("main", [START, *makers], unit)
        target = f"{part}{output}_{'returned' if copied else 'all'}"
        if isinstance(read, tuple):
            self._put(Merge(target, read, 0))
            return Variable(target)
        made_on = self.written.streams[makers[0]]
        if (part, output) in self.rows:
            first = self.begun[f"{part} of {layer}"]
            early = self.rows[part, output]
            made_on = "main" if early else self.written.streams[first]
        if copied and made_on != "main":
            self._put(Merge(target, (read.name,), 0))  # type: ignore[union-attr]
            return Variable(target)
        return read


def sequential(drawing: Drawing, binding: Binding) -> Program:
    """The parts in program order on main, over whole tensors."""
    whole = replace(drawing, pieces=1, streams=("main",))
    parts = {p.name: replace(p, whole=True, streams=("main",)) for p in whole.parts}
    writer = Writer(Random(0), whole, binding, parts, shared_names=False)
    statements = [s for _, s in writer.write() if not isinstance(s, Record | Join)]
    return Program((Straight((Block("", tuple(statements)),)),))


def random_plan(random: Random) -> Draft:
    """A plan that is right, in pieces that can be broken."""
    drawing = draw(random)
    binding = bound(drawing, ())
    parts = {part.name: part for part in drawing.parts}
    order = [part.name for part in drawing.parts]
    replaced_early = any(
        carried and part in order[:n]
        for n, reader in enumerate(drawing.parts)
        for part, _, carried in reader.reads
    )
    shared = not replaced_early and random.random() < 0.7
    statements = Writer(random, drawing, binding, parts, shared).write()
    statements = with_frees(awaited(statements, random), drawing.streams, random)
    return with_claims(Draft(drawing, binding, statements), random)
