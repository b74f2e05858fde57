"""A plan: what the generated module does, statement by statement.

A plan is a program over Python variables. Every tensor variable, wait, event and free
of the emitted `step` is one statement here, in the order of the text, so that what is
proved is what is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.graph.model import TensorType
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.source import Span


@dataclass(frozen=True, slots=True)
class Layer:
    """Which iteration: `i + offset` inside a loop, the number `offset` outside it.

    For a gap it is the number of the gap.
    """

    offset: int
    in_loop: bool = False

    def at(self, i: int) -> int:
        """The iteration when the loop variable is `i`."""
        return i + self.offset if self.in_loop else self.offset

    def __str__(self) -> str:
        if not self.in_loop:
            return str(self.offset)
        if self.offset == 0:
            return "i"
        return f"i {'-' if self.offset < 0 else '+'} {abs(self.offset)}"


@dataclass(frozen=True, slots=True)
class Variable:
    """A local variable of the step."""

    name: str


@dataclass(frozen=True, slots=True)
class InputOperand:
    """An argument of the step, or one tensor of a list argument, or a slice of it.

    `layer` is the index into a list argument that has one tensor per iteration, `item`
    a fixed index; `piece` cuts along the first axis.
    """

    name: str
    layer: Layer | None = None
    item: int | None = None
    piece: int | None = None


@dataclass(frozen=True, slots=True)
class PieceOf:
    """The rows of one piece of a variable that holds all pieces: `name[piece]`."""

    name: str
    piece: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several operands, by iteration: `options[table[layer]]`."""

    options: tuple[Variable | InputOperand | PieceOf, ...]
    table: tuple[int, ...]
    layer: Layer


Operand: TypeAlias = Variable | InputOperand | PieceOf | Choice


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call writes a result: a tensor that was made for it, or rows of one.

    `output` is the number of the result among those of the part.
    """

    output: int
    where: Variable | PieceOf


@dataclass(frozen=True, slots=True)
class Call:
    """`results = self.<part>(layer, *operands)` on a stream.

    `piece` is None when the call takes whole tensors: without a split, before and after
    the parts, and where a part runs once over all pieces. `label` is the step in the
    words of the schedule (`prev.mlp[1]`), `span` its place. What goes `into` tensors
    that are there already is not among the `results`.
    """

    part: str
    layer: Layer
    piece: int | None
    stream: str
    operands: tuple[Operand, ...]
    results: tuple[str, ...]
    label: str
    span: Span
    into: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """`event = stream.record()`, right after a call.

    `first` names the part for which an event stands that is awaited before that part
    has run: recorded before the loop, it lets the first pass start.
    """

    event: str
    stream: str
    first: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """`stream.wait(event)`. `reads` are the variables that make it necessary.

    `after` is what the schedule says that the step comes after, where it does.
    `weights` tells what the step does where one of the two brings weights, and `other`
    is the part of the other step.
    """

    stream: str
    event: str
    label: str
    reads: tuple[str, ...]
    after: str = ""
    weights: Literal["", "reads", "fills"] = ""
    other: str = ""


@dataclass(frozen=True, slots=True)
class Slices:
    """`base_0, base_1 = base[piece_0], base[piece_1]`: views of one whole tensor."""

    targets: tuple[str, ...]
    base: Operand


@dataclass(frozen=True, slots=True)
class Allocate:
    """`target = torch.empty(...)` on a stream, for steps to write, each its rows."""

    target: str
    stream: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Merge:
    """`target = torch.cat([...], axis)` on a stream; of one piece, a copy.

    `order` are the axes as they lie in the whole tensor's memory, outermost first,
    where that is not from the first to the last: its readers are compiled for that.
    """

    target: str
    pieces: tuple[str, ...]
    axis: int
    stream: str = MAIN
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Free:
    """`del variables`: drops the last names of their storages."""

    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """`held.append(variable)`: no earlier place is safe, so it lives until the join."""

    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Main waits for every stream, then every stream for main."""


@dataclass(frozen=True, slots=True)
class Return:
    """The results, in the adapter's order."""

    operands: tuple[Operand, ...]


Statement: TypeAlias = (
    Call | Record | Wait | Slices | Allocate | Merge | Free | Hold | Join | Return
)


@dataclass(frozen=True, slots=True)
class Block:
    """Statements of one window. `title` is its text in canonical form."""

    title: str
    statements: tuple[Statement, ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Straight:
    """Blocks that run once: what surrounds the parts, or one pass over a timeline.

    `section` and `iteration` say which pass; `iteration` is the last one for the
    `prev` steps that are left after it.
    """

    blocks: tuple[Block, ...]
    section: int | None = None
    iteration: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """Blocks that run for i = `start` .. `stop` - 1, iterations of one section."""

    blocks: tuple[Block, ...]
    section: int
    start: int
    stop: int


Segment: TypeAlias = Straight | Loop


@dataclass(frozen=True, slots=True)
class Program:
    """Segments in the order of the text.

    The first one is what runs before the parts, the last one what runs after them. In
    between, iterations of equal text are loops: nothing in a loop asks which one it is.
    """

    segments: tuple[Segment, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks in the order of the text."""
        return tuple(block for segment in self.segments for block in segment.blocks)


@dataclass(frozen=True, slots=True)
class Plan:
    """Both programs of one schedule and entry.

    `streams` lists main first. `buffers` are the parts that bring weights, each with
    the number of its buffers: those of iteration i are brought to buffer i mod n.
    """

    binding: Binding
    streams: tuple[str, ...]
    step: Program
    sequential: Program
    buffers: Mapping[str, int] = field(default_factory=dict)
