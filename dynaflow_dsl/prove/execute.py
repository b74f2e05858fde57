"""Run a plan's statements on the abstract machine, over all iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.bind.uses import host_waits, uses_of
from dynaflow_dsl.graph.model import Size, TensorType
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
from dynaflow_dsl.prove.machine import Machine, Owner, Step
from dynaflow_dsl.prove.memory import Access, Content, Row, Storage
from dynaflow_dsl.prove.order import writers_before
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.source import Span

OUTSIDE = Storage(Access(MAIN, 0, "the caller", None), from_outside=True)


class Execution:
    """One run of a program for a binding cut into `pieces`.

    `buffers` says to how many buffers each part brings weights in turn. `in_graphs` is
    a step that was captured in pieces: where the host waits one graph ends and another
    one begins, with all streams joined.
    """

    def __init__(
        self,
        binding: Binding,
        streams: tuple[str, ...],
        pieces: int,
        buffers: Mapping[str, int],
        machine: Machine | None = None,
        *,
        in_graphs: bool = False,
    ) -> None:
        self.binding = binding
        self.pieces = pieces
        self.buffers = buffers
        # What brings each parameter, and in which iteration.
        self.brought = {
            name: (part.name, i)
            for part in binding.parts
            if part.fetches
            for i, instance in enumerate(part.instances)
            for name in instance.parameters
        }
        self.machine = machine or Machine(streams)
        self.calls: Counter[Step] = Counter()
        self.returned = False
        self.parts = {part.name: part for part in binding.everything}
        self.uses = uses_of(binding)
        self.in_graphs = in_graphs
        self.host_waits = {
            name: dict(enumerate(waits)) for name, waits in host_waits(binding).items()
        }
        self.writers = writers_before(binding)
        # Values of which each piece is made by a step of its own.
        self.made_in_pieces = frozenset(
            value
            for part in binding.inner
            if part.name not in binding.joined
            for instance in part.instances
            for value in instance.outputs
        )
        # What the caller did on main comes before all steps, also where none is there.
        self.start = self.machine.issue(MAIN, "the caller", None)
        self.span = binding.schedule.sections[-1].timeline_span

    def run(self, program: Program) -> Machine:
        """All segments, loops as often as they run."""
        for segment in program.segments:
            passes = (
                range(segment.start, segment.stop)
                if isinstance(segment, Loop)
                else (0,)
            )
            for i in passes:
                for block in segment.blocks:
                    span = block.span or self.span
                    self._statements(block.statements, i, span)
        if not self.returned:
            self.machine.fault("value", "nothing is returned", self.span)
        self.machine.finish()
        return self.machine

    def _statements(
        self, statements: tuple[Statement, ...], i: int, span: Span | None
    ) -> None:
        for statement in statements:
            # What stands behind the return never runs.
            if not self.returned:
                self._statement(statement, i, span)

    def _statement(self, statement: Statement, i: int, span: Span | None) -> None:
        machine = self.machine
        match statement:
            case Call():
                self._call(statement, i)
            case Record(event, stream):
                machine.record(event, stream)
            case Wait(stream, event):
                machine.wait(stream, event, span)
            case Slices(targets, base):
                self._slices(targets, base, i, span)
            case Allocate(target, stream, layout):
                self._allocate(target, stream, layout, span)
            case Merge():
                self._merge(statement, span)
            case Free(variables):
                for variable in variables:
                    machine.drop(variable, span)
            case Hold(variables):
                for variable in variables:
                    machine.hold(variable, span)
            case Join():
                machine.join()
            case Return(operands):
                self._return(operands, i)
                self.returned = True

    def _call(self, call: Call, i: int) -> None:
        machine = self.machine
        layer = call.layer.at(i)
        part = self.parts.get(call.part)
        if part is None or not 0 <= layer < len(part.instances):
            said = f"{call.label} is no step of the model in layer {layer}"
            machine.fault("value", said, call.span)
            return
        instance = part.instances[layer]
        step = Step(call.part, layer, call.piece)
        self.calls[step] += 1
        host_wait = self.host_waits.get(call.part, {}).get(instance.body, "")
        if host_wait and self.in_graphs:
            machine.join()
        machine.start(step, call.stream)
        if not machine.knows(call.stream, self.start):
            machine.fault(
                "race",
                f"{call.label} runs before {call.stream} has waited for the start",
                call.span,
            )
        access = machine.issue(call.stream, call.label, call.span, layer)
        machine.accesses[step] = access
        if len(call.operands) != len(instance.inputs):
            machine.fault("value", f"{call.label} takes other tensors", call.span)
        for operand, wanted in zip(call.operands, instance.inputs, strict=False):
            content, variable = self._content(operand, i)
            if content is None:
                said = f"{call.label} reads {variable}, which is not there"
                machine.fault("unbound", said, call.span)
                continue
            expected = self._expected(wanted, call)
            if (content.value, content.piece) != expected:
                machine.fault(
                    "value",
                    f"{call.label} in layer {layer} reads {_said(*expected[::-1])} in "
                    f"the model, and finds {_said(content.piece, content.value)} in "
                    f"{variable}",
                    call.span,
                )
            machine.read(content, access, variable)
        self._effects(call, layer, access)
        self._weights(call, layer, access)
        left = dict(enumerate(instance.outputs))
        for target in call.into:
            made = Content(left.pop(target.output, ""), call.piece, Storage(access))
            self._write(target.where, made, access, i)
        if len(call.results) != len(left):
            machine.fault("value", f"{call.label} gives other results", call.span)
        for name, value in zip(call.results, left.values(), strict=False):
            machine.bind(name, Content(value, call.piece, Storage(access)), call.span)
        if host_wait:
            machine.wait_on_host(step, done=host_wait == "until it is done")
            if self.in_graphs:
                machine.join()

    def _write(self, where: Operand, made: Content, access: Access, i: int) -> None:
        """A result goes to its rows of a tensor that was made for it."""
        content, name = self._content(where, i)
        if content is None:
            said = f"{access.label} writes {name}, which is not there"
            self.machine.fault("unbound", said, access.span)
            return
        self.machine.write(content, access, made, name)

    def _allocate(
        self, target: str, stream: str, layout: TensorType, span: Span | None
    ) -> None:
        """A tensor of rows that steps write: those of each piece, or all at once."""
        access = self.machine.issue(stream, f"making {target}", span)
        split = self.binding.schedule.split
        cut = split is not None and layout.shape[:1] == (Size(1, (split.dimension,)),)
        rows = tuple(Row() for _ in range(self.pieces if cut else 1))
        storage = Storage(access, rows=rows)
        self.machine.bind(target, Content("", None, storage), span)

    def _effects(self, call: Call, layer: int, access: Access) -> None:
        """What the step touches and uses beside the tensors that it takes."""
        owner = Owner(call.part, layer)
        instance = self.parts[call.part].instances[layer]
        for name, writes in instance.touched:
            if (owner, name) not in self.writers:
                # Nobody writes it.
                continue
            expected = self.writers[owner, name]
            apart = call.piece is not None and name in self.binding.axes
            for place in (call.piece,) if apart else range(self.pieces):
                self.machine.touch(
                    name, place or 0, access, owner, expected, writes=writes
                )
        if (uses := self.uses.get(call.part)) is not None:
            for resource in uses[instance.body]:
                self.machine.use(resource, access)

    def _weights(self, call: Call, layer: int, access: Access) -> None:
        """Bring weights to their buffer, or read them where they were brought."""
        part = self.parts[call.part]
        if part.fetches:
            if (count := self.buffers.get(call.part, 0)) < 1:
                message = f"{call.label} brings weights to no buffer"
                self.machine.fault("value", message, call.span)
                return
            self.machine.fill((call.part, layer % count), layer, access)
            return
        names = part.instances[layer].parameters
        read = dict.fromkeys(self.brought[n] for n in names if n in self.brought)
        for name, wanted in read:
            count = self.buffers.get(name, 0) or 1
            self.machine.read_buffer((name, wanted % count), wanted, access)

    def _expected(self, value: str, call: Call) -> tuple[str, int | None]:
        """Per piece inside the iterations, but what is the same for all pieces."""
        if call.piece is None:
            # What is not cut is in the first piece as in any other.
            uncut = value in self.made_in_pieces and value not in self.binding.axes
            return value, 0 if uncut and self.pieces > 1 else None
        cut = value in self.binding.axes or value in self.made_in_pieces
        return value, call.piece if cut else None

    def _content(self, operand: Operand, i: int) -> tuple[Content | None, str]:
        match operand:
            case Variable(name):
                content = self.machine.variables.get(name)
                if content is not None and content.storage.rows:
                    value = content.storage.value(content.piece)
                    content = content._replace(value=value)
                return content, name
            case InputOperand(name, layer, item, piece):
                index = layer.at(i) if layer is not None else item
                value = name if index is None else f"{name}.{index}"
                if piece is not None and self.binding.axes.get(value) != 0:
                    # No rows of this piece alone.
                    piece = -1
                return Content(value, piece, OUTSIDE), name
            case PieceOf(name, piece):
                content = self.machine.variables.get(name)
                if content is None:
                    return None, name
                if content.piece is None and content.storage.at(piece):
                    value = content.storage.value(piece)
                    return Content(value, piece, content.storage), name
                axis = self.binding.axes.get(content.value)
                if content.piece is not None or axis != 0:
                    # No rows of this piece alone.
                    return content._replace(piece=-1), name
                return content._replace(piece=piece), name
            case Choice(options, table, layer):
                return self._content(options[table[layer.at(i)]], i)

    def _slices(
        self, targets: tuple[str, ...], base: Operand, i: int, span: Span | None
    ) -> None:
        content, name = self._content(base, i)
        if content is None:
            self.machine.fault("unbound", f"{name} is sliced before it exists", span)
            return
        whole = len(targets) == 1
        if not whole and (
            content.piece is not None
            or self.binding.axes.get(content.value) != 0
            or len(targets) != self.pieces
        ):
            self.machine.fault("value", f"{name} cannot be cut in pieces", span)
        for piece, target in enumerate(targets):
            held = content if whole else content._replace(piece=piece)
            self.machine.bind(target, held, span)

    def _merge(self, merge: Merge, span: Span | None) -> None:
        machine = self.machine
        target, pieces, axis = merge.target, merge.pieces, merge.axis
        access = machine.issue(merge.stream, f"joining {target}", span)
        contents = []
        for name in pieces:
            content, _ = self._content(Variable(name), 0)
            if content is None:
                machine.fault("unbound", f"{name} is joined before it exists", span)
                return
            machine.read(content, access, name)
            contents.append(content)
        value = contents[0].value
        in_order = [(c.value, c.piece) for c in contents]
        # A single piece is copied; it has to be the whole value.
        whole = contents[0].piece is None or value not in self.binding.axes
        copied = len(pieces) == 1 and whole
        if not copied and in_order != [(value, k) for k in range(self.pieces)]:
            listed = ", ".join(_said(k, value) for value, k in in_order)
            machine.fault("value", f"{target} joins {listed}, in this order", span)
        if not copied and self.binding.axes.get(value) != axis:
            machine.fault("value", f"{target} is joined along axis {axis}", span)
        machine.bind(target, Content(value, None, Storage(access)), span)

    def _return(self, operands: tuple[Operand, ...], i: int) -> None:
        machine = self.machine
        span = self.span
        for stream in machine.unfinished():
            last = machine.last_on(stream)
            machine.fault(
                "race",
                f"the step ends before main has waited for {stream}",
                last.span if last is not None else span,
            )
        if len(operands) != len(self.binding.results):
            machine.fault("value", "other results are returned", span)
        for operand, wanted in zip(operands, self.binding.results, strict=False):
            content, name = self._content(operand, i)
            if content is None:
                said = f"{name} is returned, and is not there"
                machine.fault("unbound", said, span)
                continue
            # Of what is not cut, each piece has all.
            merged = content.piece is None or (
                content.piece >= 0 and content.value not in self.binding.axes
            )
            if content.value != wanted or not merged:
                machine.fault("value", f"{name} is returned for {wanted}", span)
            storage = content.storage
            if not storage.from_outside and storage.made.stream != MAIN:
                machine.fault(
                    "freed",
                    f"the result {name} is made on {storage.made.stream}; its "
                    "memory would go back there while the caller reads it on main",
                    storage.made.span,
                )
            if isinstance(operand, Variable):
                machine.hold(name, span)


def _said(piece: int | None, value: str) -> str:
    """A value of the model, or a piece of one."""
    if not value:
        return "rows that are not all of one value"
    if piece is None:
        return f"all of {value}"
    return f"piece {piece} of {value}" if piece >= 0 else f"no piece of {value}"
