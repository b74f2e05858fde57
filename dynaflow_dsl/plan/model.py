"""A plan: what the generated module does, statement by statement.

A plan is a program over Python variables. Every tensor variable, wait, event and free
of the emitted `step` is one statement here, in the order of the text, so that what is
proved is what is emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.source import Span


@dataclass(frozen=True, slots=True)
class Layer:
    """Which iteration: `i + offset` inside the loop, the number `offset` outside it."""

    offset: int
    in_loop: bool = False

    def at(self, i: int) -> int:
        """The iteration when the loop variable is `i`."""
        return i + self.offset if self.in_loop else self.offset

    def __str__(self) -> str:
        if not self.in_loop:
            return str(self.offset)
        return "i" if self.offset == 0 else f"i - {-self.offset}"


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
class Choice:
    """One of several operands, by iteration: `options[table[layer]]`."""

    options: tuple[Variable | InputOperand, ...]
    table: tuple[int, ...]
    layer: Layer


Operand: TypeAlias = Variable | InputOperand | Choice


@dataclass(frozen=True, slots=True)
class Call:
    """`results = self.<part>(layer, *operands)` on a stream.

    `piece` is None when the call takes whole tensors. `label` is the step in the words
    of the schedule (`prev.mlp[1]`), `span` its place.
    """

    part: str
    layer: Layer
    piece: int | None
    stream: str
    operands: tuple[Operand, ...]
    results: tuple[str, ...]
    label: str
    span: Span


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
    """`stream.wait(event)`. `reads` are the variables that make it necessary."""

    stream: str
    event: str
    label: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slices:
    """`base_0, base_1 = base[piece_0], base[piece_1]`: views of one whole tensor."""

    targets: tuple[str, ...]
    base: Operand


@dataclass(frozen=True, slots=True)
class Merge:
    """`target = torch.cat([...], axis)` on main; of one piece, a copy."""

    target: str
    pieces: tuple[str, ...]
    axis: int


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
    Call | Record | Wait | Slices | Merge | Free | Hold | Join | Return
)


@dataclass(frozen=True, slots=True)
class Block:
    """Statements of one window. `title` is its text in canonical form."""

    title: str
    statements: tuple[Statement, ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Iteration 0 and what precedes it, the loop over the others, and the rest.

    `loop` runs for i = `start` .. iterations - 1; it is empty if there are none.
    `start` is 0 when iteration 0 is like the others.
    """

    first: tuple[Block, ...]
    loop: tuple[Block, ...]
    last: tuple[Block, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Both programs of one schedule and entry.

    `streams` lists main first.
    """

    binding: Binding
    streams: tuple[str, ...]
    step: Program
    sequential: Program
