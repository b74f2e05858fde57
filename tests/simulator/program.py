"""Fills queues with what a plan's step does, statement by statement.

Tensors are views of storages, names hold tensors, and a storage whose last name goes
is handed out again at once on the stream that made it, as the caching allocator may.
What every step should read is computed beside it, by running the model's parts in
program order: the plan has no say in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from dynaflow_dsl.graph.model import TensorType
from dynaflow_dsl.plan.model import (
    Allocate,
    Call,
    Choice,
    Free,
    Hold,
    InputOperand,
    Join,
    Loop,
    Merge,
    Operand,
    PieceOf,
    Program,
    Record,
    Return,
    Slices,
    Statement,
    Variable,
    Wait,
)
from tests.simulator.model import Brought, Given, Instant, Made, Model, Term, made_by
from tests.simulator.queues import Cell, Item, Kernel, Recording, Role

# Read by all steps of a schedule: what the caller's stream did before.
START: Cell = ("the start", None)


@dataclass(slots=True, eq=False)
class Storage:
    """Memory; `stream` made it and gets it back, None for what the caller owns."""

    name: Hashable
    stream: str | None
    names: int = 0
    empty: bool = False

    def cell(self, row: int | None) -> Cell:
        return (self.name, row)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Rows of a storage: one per piece, or one that is no piece's own."""

    storage: Storage
    rows: tuple[int | None, ...]

    @property
    def cells(self) -> list[Cell]:
        return [self.storage.cell(row) for row in self.rows]


class Stopped(Exception):
    """The text would raise an exception here."""


@dataclass(slots=True)
class Simulated:
    """The queues of a step, what went wrong while filling them, and its calls."""

    recording: Recording
    faults: list[tuple[str, str]]
    calls: dict[Instant, list[int]]


@dataclass(slots=True)
class Simulation:
    """One run of a program; `captured` as inside a graph, where streams end in main."""

    model: Model
    streams: tuple[str, ...]
    captured: bool = False
    items: list[Item] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Tensor] = field(default_factory=dict)
    held: list[Tensor] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    calls: dict[Instant, list[int]] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    terms: dict[Cell, Term] = field(default_factory=dict)
    histories: dict[Cell, tuple[Instant, ...]] = field(default_factory=dict)
    brought: dict[Cell, Brought] = field(default_factory=dict)
    waiting: dict[str, list[Cell]] = field(default_factory=dict)
    joined: bool = False
    storages: int = 0
    result: list[Tensor] | None = None

    def run(self, program: Program) -> Simulated:
        for name in sorted(self.model.inputs):
            rows = self.model.rows(name)
            self.inputs[name] = Tensor(Storage(name, None, 1), rows)
            for row in rows:
                self.terms[name, row] = Given(name, row)
        given = [cell for tensor in self.inputs.values() for cell in tensor.cells]
        self._launch("main", "the caller's inputs", (), (START, *given), "start")
        error = ""
        try:
            self._segments(program)
        except Stopped as stopped:
            error = str(stopped)
            self.faults.append(("unbound", error))
        if self.result is None and not error:
            self.faults.append(("value", "nothing is returned"))
        self._finish(given)
        return Simulated(
            Recording(self.streams, self.items, error), self.faults, self.calls
        )

    def _segments(self, program: Program) -> None:
        for segment in program.segments:
            passes = (
                range(segment.start, segment.stop)
                if isinstance(segment, Loop)
                else range(1)
            )
            for i in passes:
                for block in segment.blocks:
                    for statement in block.statements:
                        if self.result is None:
                            self._statement(statement, i)

    def _finish(self, given: Sequence[Cell]) -> None:
        """The step returns: its names go, and the caller reads what it got."""
        results = self.result or []
        for tensor in results:
            tensor.storage.names += 1
        for name in list(self.variables):
            self._drop(name)
        for tensor in self.held:
            self._release(tensor.storage)
        cells = [cell for tensor in results for cell in tensor.cells]
        # What steps write in place has to be there as well.
        kept = [cell for cell in given if cell in self.histories]
        self._launch("main", "the caller", (*cells, *kept), (), "end")
        # The caller lets go of the results as soon as it has issued what reads them.
        for tensor in results:
            self._release(tensor.storage)
        self._launch("main", "the caller's next inputs", (), given, "next")

    # What a statement does.

    def _statement(self, statement: Statement, i: int) -> None:
        match statement:
            case Call():
                self._call(statement, i)
            case Record(event, stream):
                self._record(event, stream)
            case Wait(stream, event):
                if event not in self.events:
                    raise Stopped(f"{event} has no value")
                self._put(stream, "wait", self.events[event])
            case Slices(targets, base):
                tensor = self._operand(base, i)
                if len(targets) == 1:
                    self._bind(targets[0], tensor)
                    return
                for piece, target in enumerate(targets):
                    self._bind(target, self._slice(tensor, piece, self._axis(tensor)))
            case Allocate(target, stream, layout):
                self._empty(target, stream, layout)
            case Merge():
                self._merge(statement)
            case Free(variables):
                for variable in variables:
                    self._variable(variable)
                    self._drop(variable)
            case Hold(variables):
                for variable in variables:
                    tensor = self._variable(variable)
                    tensor.storage.names += 1
                    self.held.append(tensor)
            case Join():
                self._join()
            case Return(operands):
                self.result = [self._operand(operand, i) for operand in operands]
                self._check_results()

    def _call(self, call: Call, i: int) -> None:
        model, layer = self.model, call.layer.at(i)
        if not 0 <= layer < len(model.parts[call.part].instances):
            raise Stopped(f"{call.label} has no layer {layer}")
        instance = model.parts[call.part].instances[layer]
        instant = (call.part, layer, call.piece)
        operands = [self._operand(operand, i) for operand in call.operands]
        expected = [
            (value, model.rows_of(value, call.piece)) for value in instance.inputs
        ]
        touched = model.touched(instance, call.piece)
        written = model.touched(instance, call.piece, written=True)
        found = [self.terms.get(c) for operand in operands for c in operand.cells]
        shapes = [rows for _, rows in expected]
        read = tuple(found) + tuple(map(self._history, touched))
        count = len(call.results) + len(call.into)
        if instant not in model.reads or count != len(instance.outputs):
            self.faults.append(("value", f"{call.label} is no step of the model"))
        elif [len(o.rows) for o in operands] != [len(rows) for rows in shapes] or (
            read[: len(found)] != model.reads[instant][: len(found)]
        ):
            self.faults.append(("value", f"{call.label} reads something else"))
        elif not self._in_order(
            touched, model.reads[instant][len(found) :], call, layer
        ):
            self.faults.append(("order", f"{call.label} comes at another time"))
        results: list[Tensor] = []
        written_to: list[Cell] = []
        into = {t.output: self._operand(t.where, i) for t in call.into}
        for k, value in enumerate(instance.outputs[:count]):
            rows = model.rows_of(value, call.piece)
            if k in into:
                made = into[k]
                written_to += made.cells
                alike = (None in made.rows) == (None in rows)
                if len(made.rows) != len(rows) or not alike or not made.storage.empty:
                    self.faults.append(("value", f"{call.label} has no place there"))
                    continue
            else:
                made = self._allocate(call.stream, rows)
                results.append(made)
            for row, cell in zip(rows, made.cells, strict=True):
                self.terms[cell] = made_by(instant, k, row)
        used = model.resources(call.part, instance, call.stream)
        brought = self._weights(call, layer)
        # Who writes in place comes before later writers, whatever it reads there.
        seen = [c for o in operands for c in o.cells] + touched + brought
        written += brought if model.parts[call.part].fetches else []
        reads = (START, *(c for c in seen if c not in written))
        fresh = (c for made in results for c in made.cells)
        writes = (*fresh, *written_to, *written, *used)
        number = self._launch(call.stream, call.label, reads, writes)
        self.calls.setdefault(instant, []).append(number)
        for cell in model.touched(instance, call.piece, written=True):
            self.histories[cell] = (*self._history(cell), instant)
        for name, made in zip(call.results, results, strict=False):
            self._bind(name, made)

    def _weights(self, call: Call, layer: int) -> list[Cell]:
        """The buffers that a step fills, or reads as they were filled for it."""
        model = self.model
        found = model.weights(call.part, layer)
        for cell, brought in found.items():
            if model.parts[call.part].fetches:
                self.brought[cell] = brought
            elif self.brought.get(cell) != brought:
                text = f"{call.label} finds other weights in {cell[0]}"
                self.faults.append(("value", text))
        return list(found)

    def _in_order(
        self, touched: Sequence[Cell], wanted: Sequence[Any], call: Call, layer: int
    ) -> bool:
        """Whether memory has been written by the steps that come before in the model.

        Pieces of one part may write what is not cut in any order among themselves.
        """
        for cell, steps in zip(touched, wanted, strict=True):
            here, there = (
                [step for step in history if step[:2] != (call.part, layer)]
                for history in (self._history(cell), steps)
            )
            groups = [
                [key for key, _ in groupby(h, itemgetter(0, 1))] for h in (here, there)
            ]
            if groups[0] != groups[1] or set(here) != set(there):
                return False
        return True

    def _history(self, cell: Cell) -> tuple[Instant, ...]:
        return self.histories.get(cell, ())

    def _merge(self, merge: Merge) -> None:
        pieces = [self._variable(name) for name in merge.pieces]
        cells = [cell for piece in pieces for cell in piece.cells]
        rows: tuple[int | None, ...] = tuple(range(len(cells)))
        if len(pieces) == 1:
            rows = pieces[0].rows
        wrong = len(pieces) > 1 and self._axis(pieces[0]) != merge.axis
        made = self._allocate(merge.stream, rows)
        for target, source in zip(made.cells, cells, strict=True):
            # Rows that are joined along another axis are nobody's.
            self.terms[target] = Given("rows side by side", None)
            if not wrong and source in self.terms:
                self.terms[target] = self.terms[source]
        self._launch(
            merge.stream, f"joining {merge.target}", (START, *cells), made.cells
        )
        self._bind(merge.target, made)

    def _empty(self, target: str, stream: str, layout: TensorType) -> None:
        """Memory that the stream may still use for what lay there before."""
        split = self.model.binding.schedule.split
        cut = split is not None and split.dimension in layout.shape[0].dimensions
        rows: tuple[int | None, ...] = (None,)
        if cut:
            rows = tuple(range(self.model.pieces))
        made = self._allocate(stream, rows)
        made.storage.empty = True
        self._launch(stream, f"making {target}", (), made.cells)
        self._bind(target, made)

    def _join(self) -> None:
        main, *others = self.streams
        for stream in others:
            self._record(f"the end of {stream}", stream)
            self._put(main, "wait", self.events[f"the end of {stream}"])
        self.joined = True
        if self.captured:
            return
        self._record("the join", main)
        for stream in others:
            self._put(stream, "wait", self.events["the join"])

    def _check_results(self) -> None:
        results = self.model.binding.results
        if len(results) != len(self.result or ()):
            self.faults.append(("value", "other results are returned"))
        for value, tensor in zip(results, self.result or (), strict=False):
            rows = self.model.rows(value)
            found = [self.terms.get(cell) for cell in tensor.cells]
            if found != [self.model.wanted(value, row, None) for row in rows]:
                self.faults.append(("value", f"{value} is not what is returned"))

    # Names, views and memory.

    def _variable(self, name: str) -> Tensor:
        if name not in self.variables:
            raise Stopped(f"{name} has no value")
        return self.variables[name]

    def _operand(self, operand: Operand, i: int) -> Tensor:
        match operand:
            case Variable(name):
                return self._variable(name)
            case PieceOf(name, piece):
                tensor = self._variable(name)
                return self._slice(tensor, piece, self._axis(tensor))
            case InputOperand(name, layer, item, piece):
                index = layer.at(i) if layer is not None else item
                value = name if index is None else f"{name}.{index}"
                if value not in self.inputs:
                    raise Stopped(f"there is no {value}")
                tensor = self.inputs[value]
                if piece is None:
                    return tensor
                return self._slice(tensor, piece, self.model.binding.axes.get(value))
            case Choice(options, table, layer):
                return self._operand(options[table[layer.at(i)]], i)

    def _axis(self, tensor: Tensor) -> int | None:
        """The axis along which a tensor's pieces lie."""
        for cell in tensor.cells:
            match self.terms.get(cell):
                case Made(part, index, output):
                    instance = self.model.parts[part].instances[index]
                    return self.model.binding.axes.get(instance.outputs[output])
                case Given(name):
                    return self.model.binding.axes.get(name)
        return None

    def _slice(self, tensor: Tensor, piece: int, axis: int | None) -> Tensor:
        """`tensor[piece]`, which cuts the first axis and no other."""
        if tensor.storage.empty:
            axis = 0
        if axis != 0 or tensor.rows != tuple(range(self.model.pieces)):
            return Tensor(tensor.storage, (-1 - piece,))
        return Tensor(tensor.storage, (piece,))

    def _bind(self, name: str, tensor: Tensor) -> None:
        tensor.storage.names += 1
        if name in self.variables:
            self._drop(name)
        self.variables[name] = tensor

    def _drop(self, name: str) -> None:
        self._release(self.variables.pop(name).storage)

    def _release(self, storage: Storage) -> None:
        storage.names -= 1
        if storage.names or storage.stream is None:
            return
        cells = [cell for cell in self.terms if cell[0] == storage.name]
        if self.captured and self.joined and storage.stream != "main":
            # Until something is issued there, or the graph ends, nobody asks for it.
            self.waiting.setdefault(storage.stream, []).extend(cells)
        else:
            self._launch(storage.stream, "reuse", (), cells, "reuse")

    def _allocate(self, stream: str, rows: tuple[int | None, ...]) -> Tensor:
        if cells := self.waiting.pop(stream, []):
            self._launch(stream, "reuse", (), cells, "reuse")
        self.storages += 1
        return Tensor(Storage(self.storages, stream), rows)

    # Queues.

    def _put(self, stream: str, kind: Any, work: Kernel | int) -> int:
        number = len(self.items)
        self.items.append(Item(number, stream, work, kind))
        return number

    def _record(self, event: str, stream: str) -> None:
        self.events[event] = len(self.items)
        self._put(stream, "record", len(self.items))

    def _launch(
        self,
        stream: str,
        label: str,
        reads: Sequence[Cell],
        writes: Sequence[Cell],
        role: Role = "step",
    ) -> int:
        made = tuple((cell, (label,), ()) for cell in writes)
        return self._put(stream, "run", Kernel(label, tuple(reads), made, role))


def missing(simulated: Simulated, model: Model) -> list[str]:
    """Steps of the model that do not run exactly once."""
    counts = {instant: len(n) for instant, n in simulated.calls.items()}
    return [
        f"{part} runs {counts.get((part, index, piece), 0)} times in {index}"
        for part, index, piece in model.reads
        if counts.get((part, index, piece)) != 1
    ]
