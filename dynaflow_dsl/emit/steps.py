"""A program's statements as lines of a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import GAP
from dynaflow_dsl.emit.layout import (
    WIDTH,
    Bracket,
    Expression,
    assigned,
    call,
    comment_above,
    commented,
    deleted,
    flat,
    lay_out,
    listed,
)
from dynaflow_dsl.emit.phrases import merged, which_option, why_waited
from dynaflow_dsl.emit.writing import Writing, writing_of
from dynaflow_dsl.plan.model import (
    Allocate,
    Block,
    Call,
    Choice,
    Free,
    Hold,
    InputOperand,
    Join,
    Layer,
    Loop,
    Merge,
    Operand,
    PieceOf,
    Plan,
    Program,
    Record,
    Return,
    Slices,
    Statement,
    Straight,
    Variable,
    Wait,
)
from dynaflow_dsl.plan.names import PHASES, Words
from dynaflow_dsl.source import Span

INDENT = 8


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the module; a call's lines know the step that they issue."""

    text: str
    label: str = ""
    layer: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class StepWriter:
    """What the text of one method depends on besides its statements.

    `attributes` maps parts to the executor's attributes, and `writing` those that are
    called with tensors for some of their results. `streams` are those of this program;
    with a single one everything runs where it is called. `words` spells what the
    schedule and the model name. `split` tells whether anything is cut.
    """

    plan: Plan
    attributes: Mapping[str, str]
    writing: Mapping[Writing, str]
    streams: tuple[str, ...]
    words: Words
    split: bool

    @property
    def on_streams(self) -> bool:
        """Whether calls are placed on streams."""
        return len(self.streams) > 1

    @property
    def in_windows(self) -> bool:
        """Whether the text repeats the schedule's windows; `sequential` has none."""
        return self.on_streams or self.split

    def program(self, program: Program) -> Iterator[Line]:
        """All lines of a method's body."""
        yield from self._opening(program)
        for segment in program.segments:
            match segment:
                case Loop(blocks, _, start, stop):
                    bounds = f"{start}, {stop}" if start else str(stop)
                    yield from self._gap()
                    yield Line(f"{' ' * INDENT}for i in range({bounds}):")
                    for k, block in enumerate(blocks):
                        if k:
                            yield from self._gap()
                        yield from self._block(block, "", INDENT + 4)
                case Straight(blocks, section, iteration):
                    where = "" if section is None else self._where(section, iteration)
                    for block in blocks:
                        yield from self._block(block, where, INDENT)

    def _where(self, section: int, iteration: int) -> str:
        """`layer 7`, in the word that the `each` gave; nothing outside an `each`."""
        bound = self.plan.binding.sections[section]
        leaf = bound.iterations[iteration].path.rpartition(".")[2]
        return f"{bound.word} {leaf}" if bound.word else ""

    def _word(self, label: str) -> str:
        """What the schedule calls an iteration of the part that a label names."""
        part = label.partition("[")[0]
        return next(
            section.word
            for section in self.plan.binding.sections
            if part == GAP or any(one.name == part for one in section.parts)
        )

    def _gap(self) -> Iterator[Line]:
        if self.in_windows:
            yield Line("")

    def _opening(self, program: Program) -> Iterator[Line]:
        margin = " " * INDENT
        if self.on_streams:
            names = list(map(self._stream, self.streams))
            yield from map(Line, assigned(names, "self.streams", INDENT))
        if self.split:
            pieces = self.plan.binding.schedule.pieces
            names = list(map(self.words.piece, range(pieces)))
            split = self.plan.binding.schedule.split
            by_phase = split is not None and bool(split.phases)
            size = PHASES if by_phase else self._split_size()
            cut = call("self.split.slices", [size])
            yield from map(Line, assigned(names, cut, INDENT))
        if any(isinstance(s, Hold) for b in program.blocks for s in b.statements):
            yield Line(f"{margin}held = []")

    def _split_size(self) -> str:
        split = self.plan.binding.schedule.split
        assert split is not None
        return flat(self._dimension(split.dimension))

    def _dimension(self, name: str) -> Expression:
        """Where the size of a dimension can be read off an input."""
        candidates = []
        for item in self.plan.binding.graph.inputs:
            if item.argument is None:
                continue
            for axis, size in enumerate(item.value.type.shape):
                if size.dimensions == (name,) and size.factor == 1:
                    shape = f"{self._input(item.name)}.shape"
                    candidates.append(listed([str(axis)], shape))
        return candidates[0]

    def _empty(self, made: Allocate) -> Bracket:
        """Memory for a tensor that steps write."""
        shape: list[Expression] = []
        for size in made.type.shape:
            factors = [self._dimension(name) for name in size.dimensions]
            if size.factor != 1 or not factors:
                factors = [str(size.factor), *factors]
            product = " * ".join(map(flat, factors))
            shape.append(product if len(factors) > 1 else factors[0])
        options = [f"dtype=torch.{made.type.dtype}", "device=self.device"]
        return call("torch.empty", [listed(shape), *options])

    def _block(self, block: Block, where: str, indent: int) -> Iterator[Line]:
        margin = " " * indent
        if self.in_windows:
            if indent == INDENT:
                yield Line("")
            title = (
                block.title
                if not where or not block.span
                else f"{where} · {block.title}"
            )
            yield Line(f"{margin}# {title}")
        statements = block.statements
        for k, statement in enumerate(statements):
            following = statements[k + 1] if k + 1 < len(statements) else None
            call_behind = _call_behind(statements, k)
            if (
                call_behind is not None
                and _call_behind(statements, k - 1) is call_behind
                and not self._in_context(call_behind)
            ):
                # A step shares a block with the tensors that are made for it.
                yield from self._in_block(statement, indent)
            else:
                yield from self._statement(statement, following, indent)

    def _statement(
        self, statement: Statement, following: Statement | None, indent: int
    ) -> Iterator[Line]:
        margin = " " * indent
        match statement:
            case Call(stream=stream, piece=piece):
                own = None
                if self._in_context(statement) and piece is not None:
                    own = f"self.context({self.words.piece(piece)})"
                yield from self._with(stream, indent, own)
                yield from self._in_block(statement, indent)
            case Record(event, stream, first):
                done = call(f"{self._stream(stream)}.record", [])
                lines = lay_out(f"{event} = ", done, "", indent)
                if first:
                    why = f"the first {self._word(first)} follows no {first}"
                    lines = [*comment_above(lines[0], why), *lines]
                yield from map(Line, lines)
            case Wait(stream, event):
                wait = call(f"{self._stream(stream)}.wait", [event])
                yield from _explained(wait, why_waited(statement, following), indent)
            case Slices(targets, base):
                yield from self._slices(targets, base, margin)
            case Allocate(stream=stream):
                yield from self._with(stream, indent)
                yield from self._in_block(statement, indent)
            case Merge(target, pieces, axis, stream, order):
                joined = merged(pieces, axis, order)
                lines = lay_out(f"{target} = ", joined, "", indent + 4)
                yield from self._on_stream(stream, lines, indent)
            case Free(variables):
                yield from map(Line, deleted(variables, indent))
            case Hold(variables):
                for name in variables:
                    why = "no stream waits for its last reader before the join"
                    yield from _explained(call("held.append", [name]), why, indent)
            case Join():
                others = " and ".join(self.streams[1:])
                line = f"{margin}self.streams.join()"
                why = f"main waits for {others}, then {others} for main"
                yield from map(Line, commented(line, why))
            case Return(operands):
                yield from self._return(operands, indent)

    def _stream(self, name: str) -> str:
        return self.words.streams[name]

    def _input(self, name: str) -> str:
        head, _, tail = name.rpartition(".")
        known = self.words.arguments
        return f"{known[head]}[{tail}]" if head in known else known[name]

    def _on_stream(
        self, stream: str, lines: Sequence[str], indent: int
    ) -> Iterator[Line]:
        if self.on_streams:
            yield from self._with(stream, indent)
            yield from map(Line, lines)
        else:
            yield from (Line(line[4:]) for line in lines)

    def _with(
        self, stream: str, indent: int, context: str | None = None
    ) -> Iterator[Line]:
        entered = [self._stream(stream)] if self.on_streams else []
        if context is not None:
            entered.append(context)
        if entered:
            yield Line(f"{' ' * indent}with {', '.join(entered)}:")

    def _in_context(self, call: Call) -> bool:
        """Whether a call runs in the context of its piece."""
        needed = self.plan.binding.graph.context and self.split
        return needed and call.piece is not None

    def _in_block(self, statement: Statement, indent: int) -> Iterator[Line]:
        """What stands in the block of its stream."""
        inner = indent + 4 if self.on_streams else indent
        match statement:
            case Call():
                if self._in_context(statement):
                    inner = indent + 4
                yield from self._call(statement, inner)
            case Allocate(target):
                made = self._empty(statement)
                yield from map(Line, lay_out(f"{target} = ", made, "", inner))

    def _call(self, step: Call, indent: int) -> Iterator[Line]:
        arguments: list[Expression] = [str(step.layer)]
        arguments += [self._operand(operand) for operand in step.operands]
        arguments += [self._operand(target.where) for target in step.into]
        name = self.attributes[step.part]
        if step.into:
            name = self.writing[writing_of(step)]
        for text in assigned(step.results, call(f"self.{name}", arguments), indent):
            yield Line(text, step.label, self._layer(step), step.span)

    def _layer(self, step: Call) -> str:
        """The layer of a step as the text names it; a gap and a part outside `each`
        have none."""
        outside = any(
            not section.word and any(part.name == step.part for part in section.parts)
            for section in self.plan.binding.sections
        )
        return "" if outside or step.part == GAP else str(step.layer)

    def _operand(self, operand: Operand) -> str:
        match operand:
            case Variable(name):
                return name
            case PieceOf(name, piece):
                return f"{name}[{self.words.piece(piece)}]"
            case InputOperand(name, layer, item, piece):
                index = layer if layer is not None else item
                text = self.words.arguments[name]
                text = text if index is None else f"{text}[{_index(index)}]"
                return text if piece is None else f"{text}[{self.words.piece(piece)}]"
            case Choice(options, table, layer) if not layer.in_loop:
                return self._operand(options[table[layer.offset]])
            case Choice(options, table, layer) if tensors := _of_one_list(options):
                # The index is chosen, not the tensor.
                name, items, piece = tensors
                chosen = which_option([items[number] for number in table], layer)
                text = f"{self.words.arguments[name]}[{chosen}]"
                return text if piece is None else f"{text}[{self.words.piece(piece)}]"
            case Choice(options, table, layer):
                listed_options = ", ".join(map(self._operand, options))
                return f"({listed_options})[{which_option(table, layer)}]"

    def _slices(
        self, targets: Sequence[str], base: Operand, margin: str
    ) -> Iterator[Line]:
        whole = self._operand(base)
        if len(targets) == 1:
            if targets[0] != whole:
                yield Line(f"{margin}{targets[0]} = {whole}")
            return
        pieces = [f"{whole}[{self.words.piece(k)}]" for k in range(len(targets))]
        line = f"{margin}{', '.join(targets)} = {', '.join(pieces)}"
        if len(line) <= WIDTH:
            yield Line(line)
        else:
            for target, piece in zip(targets, pieces, strict=True):
                yield Line(f"{margin}{target} = {piece}")

    def _return(self, operands: Sequence[Operand], indent: int) -> Iterator[Line]:
        texts = [self._operand(operand) for operand in operands]
        line = f"{' ' * indent}return {', '.join(texts)}"
        if len(line) <= WIDTH:
            yield Line(line)
        else:
            bracket = Bracket("", "(", tuple(texts))
            yield from map(Line, lay_out("return ", bracket, "", indent))


def _call_behind(statements: Sequence[Statement], k: int) -> Call | None:
    """The call that a statement is, or whose results go into the tensor that it makes
    right before, on the same stream."""
    made: set[str] = set()
    while 0 <= k < len(statements):
        match statements[k]:
            case Allocate(target, stream):
                made.add(f"{target} on {stream}")
                k += 1
            case Call(stream=stream, into=into) as found:
                here = {f"{target.where.name} on {stream}" for target in into}
                return found if made <= here else None
            case _:
                break
    return None


def _of_one_list(
    options: Sequence[Operand],
) -> tuple[str, list[int], int | None] | None:
    """Name, indices and piece, where all options are tensors of one list argument."""
    items: list[int] = []
    lists: set[tuple[str, int | None]] = set()
    for option in options:
        if not isinstance(option, InputOperand) or option.item is None:
            return None
        items.append(option.item)
        lists.add((option.name, option.piece))
    (name, piece), *others = lists
    return None if others else (name, items, piece)


def _explained(expression: Bracket, why: str, indent: int) -> Iterator[Line]:
    lines = lay_out("", expression, "", indent)
    if len(lines) == 1:
        yield from map(Line, commented(lines[0], why))
    else:
        yield from map(Line, (*comment_above(lines[0], why), *lines))


def _index(index: Layer | int) -> str:
    return str(index)
